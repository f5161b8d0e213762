// Implements the filters that make lists of lists.
#include <algorithm>

#include "text/jinja/builtins.h"

namespace skiff::jinja {
namespace {

// Makes pairs of a key and the items that share it; a pair also has them as .grouper and .list.
Value groupby(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("groupby", args, {"attribute", "default", "case_sensitive"});
  const Values items = iterate(in.budget(), input);
  const auto key_of = [&](const Value& item) {
    Value key = attribute_path(in, item, bound.need(0));
    const bool replace = key.is_undefined() && bound[1] && !bound[1]->is_none();
    return replace ? *bound[1] : key;
  };
  std::vector<Values> keys;
  in.budget().make_many(items.size(), 64);
  for (const Value& item : items)
    keys.push_back({folded(in.budget(), key_of(item), bound.flag(2, false))});
  Values groups, group;
  const auto finish = [&] {
    if (group.empty()) return;
    Value key = key_of(group.front());
    Value list = Value::list(in.budget(), std::exchange(group, {}));
    groups.push_back(
        Value::seq(in.budget(), Seq::Form::kTuple, {std::move(key), std::move(list)}, kGroupLabel));
  };
  for (const Value& item : sorted(in, items, keys, false)) {
    const auto key = [&](const Value& v) {
      return folded(in.budget(), key_of(v), bound.flag(2, false));
    };
    if (!group.empty() && !equal(in.budget(), key(group.back()), key(item))) finish();
    group.push_back(item);
  }
  finish();
  return Value::list(in.budget(), std::move(groups));
}

Value batch(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("batch", args, {"linecount", "fill_with"});
  const int64_t size = bound.integer(0, 0);
  if (size < 1) fail("batch: linecount must be positive, not {}", size);
  Values rows, row;
  for (const Value& item : iterate(in.budget(), input)) {
    if (static_cast<int64_t>(row.size()) == size)
      rows.push_back(Value::list(in.budget(), std::exchange(row, {})));
    row.push_back(item);
  }
  const bool fill = bound[1] && !bound[1]->is_none();
  if (!row.empty() && fill) {
    const auto missing = static_cast<size_t>(size) - row.size();
    in.budget().make_many(missing, sizeof(Value));
    row.insert(row.end(), missing, *bound[1]);
  }
  if (!row.empty()) rows.push_back(Value::list(in.budget(), std::move(row)));
  return generator(in, std::move(rows));
}

Value slice(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("slice", args, {"slices", "fill_with"});
  const Values items = iterate(in.budget(), input);
  const int64_t slices = bound.integer(0, 0);
  if (slices < 1) fail("slice: slices must be positive, not {}", slices);
  in.budget().make_many(static_cast<uint64_t>(slices), 64 + sizeof(Value));
  const auto n = static_cast<int64_t>(items.size());
  const int64_t each = n / slices, extra = n % slices;
  Values out;
  auto at = items.begin();
  for (int64_t i = 0; i < slices; ++i) {
    const auto end = at + each + (i < extra);
    Values part(at, end);
    if (bound[1] && !bound[1]->is_none() && i >= extra) part.push_back(*bound[1]);
    out.push_back(Value::list(in.budget(), std::move(part)));
    at = end;
  }
  return generator(in, std::move(out));
}

constexpr FilterEntry kFilters[] = {{"groupby", groupby}, {"batch", batch}, {"slice", slice}};

}  // namespace

std::span<const FilterEntry> grouping_filters() { return kFilters; }

}  // namespace skiff::jinja
