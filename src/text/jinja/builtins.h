// text/jinja/builtins.h -- what templates can call: filters, tests, functions and methods.
#pragma once
#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/interpreter.h"

namespace skiff::jinja {

using FilterFunction = Value (*)(Interpreter& in, const Value& input, const Args& args);
using TestFunction = bool (*)(Interpreter& in, const Value& input, const Args& args);
struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};
struct TestEntry {
  std::string_view name;
  TestFunction function;
};

// Each file has one table.
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> layout_filters();
std::span<const FilterEntry> markup_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> grouping_filters();
std::span<const FilterEntry> selection_filters();
std::span<const FilterEntry> value_filters();
std::array<std::span<const FilterEntry>, 7> filter_tables();  // the tables of all files
// Throws if there is no such filter or test.
Value apply_filter(Interpreter& in, const std::string& name, const Value& input, const Args& args);
bool apply_test(Interpreter& in, const std::string& name, const Value& input, const Args& args);
bool has_filter(std::string_view name);
bool has_test(std::string_view name);
std::span<const TestEntry> all_tests();

// Returns range, dict, namespace, ...; undefined if there is no such function.
Value global_function(Budget& budget, const std::string& name);
std::span<const std::pair<std::string_view, Value (*)(Interpreter&, const Args&)>>
global_functions();

// Returns a method of a text, list or dict as a value; None if the type has no method of that name.
Value method_of(Interpreter& in, const Value& self, const std::string& name);
Value call_text_method(Interpreter& in, const Value& self, const std::string& name,
                       const Args& args);
bool has_text_method(std::string_view name);
std::vector<std::string_view> text_method_names();
Value call_container_method(Interpreter& in, const Value& self, const std::string& name,
                            const Args& args);

struct Builtin : Callable {
  using Function = Value (*)(Interpreter& in, const Args& args);
  Builtin(std::string n, Function f) : name(std::move(n)), function(f) {}
  std::string repr() const override { return "<function " + name + ">"; }
  std::string name;
  Function function;

 private:
  Value run(Interpreter& in, Args args) override { return function(in, args); }
};

// Binds arguments to parameters in the order of `names`; a parameter without an argument is a null
// pointer. Throws for too many, unknown or repeated arguments.
class Bound {
 public:
  Bound(std::string_view function, const Args& args, std::initializer_list<std::string_view> names);
  const Value* operator[](size_t i) const { return values_[i]; }
  const Value& need(size_t i) const;
  const std::string& text(size_t i) const;                      // throws unless it is a text
  std::string text(size_t i, std::string_view fallback) const;  // None gives the fallback, too
  int64_t integer(size_t i, int64_t fallback) const;            // None gives the fallback, too
  bool flag(size_t i, bool fallback) const;

 private:
  std::string function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};
// Throws if there are arguments.
void takes_nothing(std::string_view function, const Args& args);

// Returns argument i as an indent: a text, or a number of blanks.
std::string blanks_or_text(Interpreter& in, const Bound& bound, size_t i, int64_t fallback);
Value urlize(Interpreter& in, const Value& input, const Args& args);
std::string escaped(Budget& budget, std::string_view text);  // & < > ' " as HTML
// Implement text % args and text.format(args).
std::string percent_format(Budget& budget, const std::string& text, const Value& args);
std::string brace_format(Interpreter& in, const Value& text, const Args& args);
// Returns the item or attribute at a dotted path, as map(attribute=...) and sort(attribute=...)
// read it.
Value attribute_path(Interpreter& in, const Value& item, const Value& path);
Value generator(Interpreter& in, Values items);
// Returns the key by which sorting and grouping compare: texts are in lower case unless case
// matters.
Value folded(Budget& budget, const Value& value, bool case_sensitive);
// Sorts stably; `keys[i]` is the key of item i. As in a comparison of lists, equal keys need no
// order between them.
Values sorted(Interpreter& in, const Values& items, const std::vector<Values>& keys, bool reverse,
              bool as_lists = false);

Value binary_operation(Interpreter& in, BinaryOp op, const Value& a, const Value& b);
Value negated(const Value& value);

}  // namespace skiff::jinja
