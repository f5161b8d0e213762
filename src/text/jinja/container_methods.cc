// Implements the methods of dict and list. Those that would change the object are refused, as in
// Jinja's immutable sandbox.
#include <algorithm>
#include <array>

#include "text/jinja/builtins.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

constexpr std::array<std::string_view, 5> kDictMethods = {"get", "items", "keys", "values", "copy"};
constexpr std::array<std::string_view, 5> kDictChanges = {"clear", "pop", "popitem", "setdefault",
                                                          "update"};
constexpr std::array<std::string_view, 3> kListMethods = {"index", "count", "copy"};
constexpr std::array<std::string_view, 8> kListChanges = {"append", "clear",  "extend",  "insert",
                                                          "pop",    "remove", "reverse", "sort"};

bool holds(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

struct MethodValue : Callable {
  MethodValue(Value s, std::string n) : self(std::move(s)), name(std::move(n)) {
    depth = self.depth() + 1;
  }
  std::string repr() const override { return "<built-in method " + name + ">"; }
  const Value* bound_to() const override { return &self; }
  Value self;
  std::string name;

 private:
  Value run(Interpreter& in, Args args) override {
    return self.is_text() ? call_text_method(in, self, name, args)
                          : call_container_method(in, self, name, args);
  }
};

Value unsafe(const Value& self, const std::string& name) {
  return Value::undefined(
      fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(self)));
}

Value dict_view(Interpreter& in, const Dict& dict, const std::string& name) {
  in.budget().make_many(dict.items.size(), sizeof(Value));
  Values items;
  for (const auto& [key, value] : dict.items) {
    if (name == "keys")
      items.push_back(key);
    else if (name == "values")
      items.push_back(value);
    else
      items.push_back(Value::seq(in.budget(), Seq::Form::kTuple, {key, value}));
  }
  return Value::seq(in.budget(), Seq::Form::kView, std::move(items), "dict_" + name);
}

Value call_dict_method(Interpreter& in, const Dict& dict, const std::string& name,
                       const Args& args) {
  if (name == "get") {
    const Bound bound("get", args, {"key", "default"});
    check_hashable(in.budget(), bound.need(0));
    const Value* found = find(in.budget(), dict, *bound[0]);
    return found ? *found : bound[1] ? *bound[1] : Value();
  }
  takes_nothing(name, args);
  if (name == "copy") return Value::dict(in.budget(), dict.items);
  return dict_view(in, dict, name);
}

}  // namespace

Value method_of(Interpreter& in, const Value& self, const std::string& name) {
  bool known = false, changes = false;
  if (self.is_text()) {
    known = has_text_method(name);
  } else if (self.as_dict()) {
    known = holds(kDictMethods, name);
    changes = holds(kDictChanges, name);
  } else if (const Seq* seq = self.as_seq();
             seq && (seq->form <= Seq::Form::kTuple || seq->form == Seq::Form::kRange)) {
    const bool list = seq->form == Seq::Form::kList;
    known = holds(kListMethods, name) && (list || name != "copy");
    changes = list && holds(kListChanges, name);
  }
  if (changes) return unsafe(self, name);
  if (!known) return {};
  return Value::callable(in.budget(), std::make_shared<MethodValue>(self, name));
}

Value call_container_method(Interpreter& in, const Value& self, const std::string& name,
                            const Args& args) {
  if (const Dict* dict = self.as_dict()) return call_dict_method(in, *dict, name, args);
  const Seq& seq = *self.as_seq();
  if (name == "copy") return Value::list(in.budget(), seq.items);
  const Value& wanted = Bound(name, args, {"value"}).need(0);
  int64_t count = 0;
  for (size_t i = 0; i < seq.items.size(); ++i) {
    if (!equal(in.budget(), seq.items[i], wanted)) continue;
    if (name == "index") return static_cast<int64_t>(i);
    ++count;
  }
  if (name == "index") fail("{} is not in list", excerpt(repr(in.budget(), wanted)));
  return count;
}

}  // namespace skiff::jinja
