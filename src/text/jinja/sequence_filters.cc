// Implements the filters over lists, dicts and other iterable values.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

constexpr size_t kKeyBytes = 64;  // bytes charged for the list of one key

Value size(Interpreter& in, const Value& input, const Args& args) {
  takes_nothing("length", args);
  int64_t n;
  if (!length(in.budget(), input, &n)) fail("object of type '{}' has no len()", type_name(input));
  return n;
}

Value first(Interpreter& in, const Value& input, const Args&) {
  const Values items = iterate(in.budget(), input);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last(Interpreter& in, const Value& input, const Args&) {
  int64_t unused;
  if (!length(in.budget(), input, &unused)) fail("'{}' object is not reversible", type_name(input));
  const Values items = iterate(in.budget(), input);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value list(Interpreter& in, const Value& input, const Args&) {
  return Value::list(in.budget(), iterate(in.budget(), input));
}

Value join(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("join", args, {"d", "attribute"});
  const std::string separator = bound[0] ? to_text(in.budget(), *bound[0]) : "";
  std::string out;
  bool any = false;
  for (const Value& item : iterate(in.budget(), input)) {
    const bool plain = !bound[1] || bound[1]->is_none();
    in.budget().make(separator.size());
    if (std::exchange(any, true)) out += separator;
    out += to_text(in.budget(), plain ? item : attribute_path(in, item, *bound[1]));
  }
  return out;
}

Value items(Interpreter& in, const Value& input, const Args&) {
  if (input.is_undefined()) return generator(in, {});
  if (!input.as_dict()) fail("can only get item pairs from a mapping, not {}", type_name(input));
  Values out;
  for (const auto& [key, value] : input.as_dict()->items)
    out.push_back(Value::seq(in.budget(), Seq::Form::kTuple, {key, value}));
  return generator(in, std::move(out));
}

Value reverse(Interpreter& in, const Value& input, const Args&) {
  Values out = iterate(in.budget(), input);
  std::reverse(out.begin(), out.end());
  if (!input.is_text()) return generator(in, std::move(out));
  std::string text;
  text.reserve(input.as_text()->size());
  for (const Value& character : out) text += *character.as_text();
  return Value(std::move(text), input.is_markup());
}

// Returns the values at "a.b,c" of an item, or the item itself.
Values sort_keys(Interpreter& in, const Value& item, const Value* attribute, bool case_sensitive) {
  if (!attribute || attribute->is_none()) return {folded(in.budget(), item, case_sensitive)};
  if (!attribute->is_text())
    return {folded(in.budget(), attribute_path(in, item, *attribute), case_sensitive)};
  Values keys;
  std::string_view rest = *attribute->as_text();
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    const Value path{std::string(rest.substr(0, comma))};
    in.budget().make(sizeof(Value));
    keys.push_back(folded(in.budget(), attribute_path(in, item, path), case_sensitive));
    more = comma != rest.npos;
    if (more) rest.remove_prefix(comma + 1);
  }
  return keys;
}

Value sort(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("sort", args, {"reverse", "case_sensitive", "attribute"});
  const Values items = iterate(in.budget(), input);
  in.budget().make_many(items.size(), kKeyBytes);
  std::vector<Values> keys;
  for (const Value& item : items)
    keys.push_back(sort_keys(in, item, bound[2], bound.flag(1, false)));
  return Value::list(in.budget(), sorted(in, items, keys, bound.flag(0, false), true));
}

Value dictsort(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1, "key");
  if (by != "key" && by != "value") fail("dictsort: by must be \"key\" or \"value\"");
  if (!input.as_dict()) fail("dictsort needs a mapping, not {}", type_name(input));
  Values items;
  in.budget().make_many(input.as_dict()->items.size(), kKeyBytes);
  std::vector<Values> keys;
  for (const auto& [key, value] : input.as_dict()->items) {
    items.push_back(Value::seq(in.budget(), Seq::Form::kTuple, {key, value}));
    keys.push_back({folded(in.budget(), by == "key" ? key : value, bound.flag(0, false))});
  }
  return Value::list(in.budget(), sorted(in, items, keys, bound.flag(2, false)));
}

Value unique(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("unique", args, {"case_sensitive", "attribute"});
  Values out, seen;
  for (const Value& item : iterate(in.budget(), input)) {
    const bool plain = !bound[1] || bound[1]->is_none();
    const Value key = folded(in.budget(), plain ? item : attribute_path(in, item, *bound[1]),
                             bound.flag(0, false));
    check_hashable(in.budget(), key);
    const bool known = std::any_of(seen.begin(), seen.end(), [&](const Value& other) {
      return equal(in.budget(), other, key);
    });
    if (known) continue;
    in.budget().make(2 * sizeof(Value));
    seen.push_back(key);
    out.push_back(item);
  }
  return generator(in, std::move(out));
}

template <int wanted>  // the sign of compare() that replaces the best so far
Value extreme(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("min/max", args, {"case_sensitive", "attribute"});
  const Values items = iterate(in.budget(), input);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key = [&](const Value& item) {
    const bool plain = !bound[1] || bound[1]->is_none();
    return folded(in.budget(), plain ? item : attribute_path(in, item, *bound[1]),
                  bound.flag(0, false));
  };
  const Value* best = &items.front();
  Value key_of_best = key(*best);
  for (const Value& item : items) {
    Value candidate = key(item);
    if (compare(in.budget(), candidate, key_of_best) * wanted <= 0) continue;
    best = &item;
    key_of_best = std::move(candidate);
  }
  return *best;
}

Value sum(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("sum", args, {"attribute", "start"});
  Value total = bound[1] ? *bound[1] : Value(int64_t{0});
  if (total.is_text()) fail("sum() can't sum strings");
  for (const Value& item : iterate(in.budget(), input)) {
    const bool plain = !bound[0] || bound[0]->is_none();
    total = binary_operation(in, BinaryOp::kAdd, total,
                             plain ? item : attribute_path(in, item, *bound[0]));
  }
  return total;
}

Value random(Interpreter&, const Value&, const Args&) {
  fail("the filter 'random' is refused: a conversation must give the same prompt each time");
}

constexpr FilterEntry kFilters[] = {
    {"length", size},    {"count", size},        {"first", first},   {"last", last},
    {"list", list},      {"join", join},         {"items", items},   {"reverse", reverse},
    {"sort", sort},      {"dictsort", dictsort}, {"unique", unique}, {"min", extreme<-1>},
    {"max", extreme<1>}, {"sum", sum},           {"random", random}};

}  // namespace

Value folded(Budget& budget, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_text()) return value;
  budget.make(64 + value.as_text()->size());
  return to_lower(*value.as_text());
}

Values sorted(Interpreter& in, const Values& items, const std::vector<Values>& keys, bool reverse,
              bool as_lists) {
  in.budget().make_many(items.size(), 2 * sizeof(size_t) + sizeof(Value));
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto before = [&](size_t a, size_t b) {
    if (keys[a].size() == 1 && !as_lists) return compare(in.budget(), keys[a][0], keys[b][0]) < 0;
    for (size_t k = 0; k < keys[a].size(); ++k)
      if (!equal(in.budget(), keys[a][k], keys[b][k]))
        return compare(in.budget(), keys[a][k], keys[b][k]) < 0;
    return false;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return reverse ? before(b, a) : before(a, b); });
  Values out;
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

Value generator(Interpreter& in, Values items) {
  return Value::seq(in.budget(), Seq::Form::kGenerator, std::move(items));
}

std::span<const FilterEntry> sequence_filters() { return kFilters; }

}  // namespace skiff::jinja
