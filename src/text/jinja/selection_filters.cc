// Implements map, select, reject, selectattr and rejectattr, which apply other filters or tests to
// each item.
#include <algorithm>

#include "text/jinja/builtins.h"

namespace skiff::jinja {
namespace {

Value map_attribute(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("map", args, {"attribute", "default"});
  Values out;
  for (const Value& item : iterate(in.budget(), input)) {
    Value value = attribute_path(in, item, bound.need(0));
    const bool replace = value.is_undefined() && bound[1] && !bound[1]->is_none();
    if (replace) value = *bound[1];
    out.push_back(std::move(value));
  }
  return generator(in, std::move(out));
}

// Removes the name of a filter or test from the front of the arguments.
std::string take_name(Args& args, const char* what) {
  if (args.positional.empty() || !args.positional[0].is_text())
    fail("{} needs the name of one", what);
  std::string name = *args.positional[0].as_text();
  args.positional.erase(args.positional.begin());
  return name;
}

// None and every other false value counts as empty here, as in Jinja.
Value map(Interpreter& in, const Value& input, const Args& args) {
  if (!truthy(input)) return generator(in, {});
  const bool by_attribute = std::any_of(args.named.begin(), args.named.end(),
                                        [](const auto& arg) { return arg.first == "attribute"; });
  if (args.positional.empty() && by_attribute) return map_attribute(in, input, args);
  Args rest = args;
  const std::string name = take_name(rest, "map: a filter, which");
  Values out;
  for (const Value& item : iterate(in.budget(), input))
    out.push_back(apply_filter(in, name, item, rest));
  return generator(in, std::move(out));
}

Value chosen(Interpreter& in, const Value& input, Args args, bool keep, bool by_attribute) {
  if (!truthy(input)) return generator(in, {});
  Value path;
  if (by_attribute) {
    if (args.positional.empty()) fail("missing parameter for attribute name");
    path = args.positional[0];
    args.positional.erase(args.positional.begin());
  }
  const std::string test = args.positional.empty() ? "" : take_name(args, "select: a test, which");
  Values out;
  for (const Value& item : iterate(in.budget(), input)) {
    const Value value = by_attribute ? attribute_path(in, item, path) : item;
    if ((test.empty() ? truthy(value) : apply_test(in, test, value, args)) == keep)
      out.push_back(item);
  }
  return generator(in, std::move(out));
}

template <bool keep, bool by_attribute>
Value choose(Interpreter& in, const Value& input, const Args& args) {
  return chosen(in, input, args, keep, by_attribute);
}

constexpr FilterEntry kFilters[] = {{"map", map},
                                    {"select", choose<true, false>},
                                    {"reject", choose<false, false>},
                                    {"selectattr", choose<true, true>},
                                    {"rejectattr", choose<false, true>}};

}  // namespace

std::span<const FilterEntry> selection_filters() { return kFilters; }

}  // namespace skiff::jinja
