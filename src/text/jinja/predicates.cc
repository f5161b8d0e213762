// Implements the tests that may follow `is`.
#include <algorithm>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

const Value& only(const Args& args) {
  if (args.positional.size() != 1 || !args.named.empty())
    fail("the test needs exactly one argument");
  return args.positional[0];
}

int64_t integer(const Value& value) {
  int64_t i;
  if (value.is_undefined()) fail("{}", value.undefined_reason());
  if (!is_integral(value, &i)) fail("the test needs an integer, not {}", type_name(value));
  return i;
}

bool remainder_is(const Value& value, int64_t divisor, int64_t wanted) {
  if (divisor == 0) fail("integer modulo by zero");
  if (divisor == -1) return wanted == 0;
  if (const double* d = value.as_float())
    return std::abs(std::fmod(*d, static_cast<double>(divisor))) == static_cast<double>(wanted);
  return std::abs(integer(value) % divisor) == wanted;
}

bool is_same(const Value& a, const Value& b) {
  if (a.identity() || b.identity()) return a.identity() == b.identity();
  if (a.as_bool() && b.as_bool()) return *a.as_bool() == *b.as_bool();
  if (a.as_int() && b.as_int()) return *a.as_int() == *b.as_int();
  if (a.as_wide() && b.as_wide()) return *a.as_wide() == *b.as_wide();
  return a.is_none() && b.is_none();
}

bool is_sequence(const Value& v) {
  const Seq* seq = v.as_seq();
  return v.is_text() || v.as_dict() || v.is_undefined() ||
         (seq && seq->form != Seq::Form::kGenerator && seq->form != Seq::Form::kView);
}

bool is_iterable(const Value& v) {
  return v.is_text() || v.as_dict() || v.is_undefined() || v.as_seq() || v.as_loop();
}

using In = Interpreter;
using V = Value;
using A = Args;
constexpr TestEntry kTests[] = {
    {"defined", [](In&, const V& v, const A&) { return !v.is_undefined(); }},
    {"undefined", [](In&, const V& v, const A&) { return v.is_undefined(); }},
    {"none", [](In&, const V& v, const A&) { return v.is_none(); }},
    {"boolean", [](In&, const V& v, const A&) { return v.as_bool() != nullptr; }},
    {"true", [](In&, const V& v, const A&) { return v.as_bool() && *v.as_bool(); }},
    {"false", [](In&, const V& v, const A&) { return v.as_bool() && !*v.as_bool(); }},
    {"integer", [](In&, const V& v, const A&) { return v.as_int() || v.as_wide(); }},
    {"float", [](In&, const V& v, const A&) { return v.as_float() != nullptr; }},
    {"number", [](In&, const V& v,
                  const A&) { return v.as_int() || v.as_float() || v.as_bool() || v.as_wide(); }},
    {"string", [](In&, const V& v, const A&) { return v.is_text(); }},
    {"mapping", [](In&, const V& v, const A&) { return v.as_dict() != nullptr; }},
    {"sequence", [](In&, const V& v, const A&) { return is_sequence(v); }},
    {"iterable", [](In&, const V& v, const A&) { return is_iterable(v); }},
    {"callable", [](In&, const V& v, const A&) { return v.as_callable() || v.as_loop(); }},
    {"escaped", [](In&, const V& v, const A&) { return v.is_markup(); }},
    {"sameas", [](In&, const V& v, const A& a) { return is_same(v, only(a)); }},
    {"odd", [](In&, const V& v, const A&) { return remainder_is(v, 2, 1); }},
    {"even", [](In&, const V& v, const A&) { return remainder_is(v, 2, 0); }},
    {"divisibleby",
     [](In&, const V& v, const A& a) { return remainder_is(v, integer(only(a)), 0); }},
    {"lower",
     [](In& in, const V& v, const A&) { return is_all(to_text(in.budget(), v), Class::kLower); }},
    {"upper",
     [](In& in, const V& v, const A&) { return is_all(to_text(in.budget(), v), Class::kUpper); }},
    {"in", [](In& in, const V& v, const A& a) { return contains(in.budget(), only(a), v); }},
    {"filter", [](In&, const V& v, const A&) { return v.is_text() && has_filter(*v.as_text()); }},
    {"test", [](In&, const V& v, const A&) { return v.is_text() && has_test(*v.as_text()); }},
    {"eq", [](In& in, const V& v, const A& a) { return equal(in.budget(), v, only(a)); }},
    {"ne", [](In& in, const V& v, const A& a) { return !equal(in.budget(), v, only(a)); }},
    {"lt", [](In& in, const V& v, const A& a) { return compare(in.budget(), v, only(a)) < 0; }},
    {"le", [](In& in, const V& v, const A& a) { return compare(in.budget(), v, only(a)) <= 0; }},
    {"gt", [](In& in, const V& v, const A& a) { return compare(in.budget(), v, only(a)) > 0; }},
    {"ge", [](In& in, const V& v, const A& a) { return compare(in.budget(), v, only(a)) >= 0; }},
};

// Other names of the comparisons; all can be used as in select("==", 1).
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"==", "eq"}, {"equalto", "eq"}, {"!=", "ne"},          {"<", "lt"}, {"lessthan", "lt"},
    {"<=", "le"}, {">", "gt"},       {"greaterthan", "gt"}, {">=", "ge"}};

const TestEntry* find_test(std::string_view name) {
  for (const auto& [alias, meaning] : kAliases)
    if (alias == name) name = meaning;
  for (const TestEntry& entry : kTests)
    if (entry.name == name) return &entry;
  return nullptr;
}

}  // namespace

bool has_test(std::string_view name) { return find_test(name) != nullptr; }

bool apply_test(Interpreter& in, const std::string& name, const Value& input, const Args& args) {
  const TestEntry* entry = find_test(name);
  if (!entry) fail("no test named '{}'", excerpt(name));
  const Interpreter::Door door(in, &input, args);
  return entry->function(in, input, args);
}

std::span<const TestEntry> all_tests() { return kTests; }

}  // namespace skiff::jinja
