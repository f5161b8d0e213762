// text/jinja/value.h -- a value of the template language, with Python's meaning of truth,
// equality and order. Values are immutable (as in Jinja's immutable sandbox) except namespaces.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "text/jinja/budget.h"

namespace skiff::jinja {

class Value;
struct Callable;
struct Loop;

struct Undefined {
  std::shared_ptr<const std::string> why;  // "'x' is undefined"
};
struct None {};
struct Text {
  std::string bytes;    // UTF-8
  bool markup = false;  // made by `safe` or `escape`; concatenation escapes the other operand
};

using Values = std::vector<Value>;
struct Seq {
  enum class Form { kList, kTuple, kGenerator, kView, kRange };
  Form form = Form::kList;
  Values items;
  std::string label =
      {};  // label of views, ranges and groups: "dict_keys", "range(0, 3)", kGroupLabel
  int depth = 1;
};

// The tuples that `groupby` makes.
inline constexpr const char* kGroupLabel = "group";

using Pairs = std::vector<std::pair<Value, Value>>;
struct Dict {
  Pairs items;
  int depth = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> items;
};

class Value {
 public:
  Value() : v_(None{}) {}
  Value(bool b) : v_(b) {}
  Value(int64_t i) : v_(i) {}
  Value(uint64_t) = delete;
  Value(double d) : v_(d) {}
  Value(std::string text, bool markup = false)
      : v_(std::make_shared<const Text>(Text{std::move(text), markup})) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<Namespace> n) : v_(std::move(n)) {}
  Value(std::shared_ptr<Loop> l) : v_(std::move(l)) {}

  static Value undefined(std::string why);
  // The only way to make a callable value: charges the budget and refuses a value nested deeper
  // than it allows, because values are destroyed and compared by recursion.
  static Value callable(Budget& budget, std::shared_ptr<Callable> callable);
  // An integer in (INT64_MAX, UINT64_MAX], as JSON may hold: printed and compared, but arithmetic
  // refuses it as it refuses every result that does not fit into 64 signed bits.
  static Value wide(uint64_t i);
  // Charges the budget and refuses values nested deeper than it allows.
  static Value seq(Budget& budget, Seq::Form form, Values items, std::string label = {});
  static Value list(Budget& budget, Values items) {
    return seq(budget, Seq::Form::kList, std::move(items));
  }
  static Value dict(Budget& budget, Pairs items);  // keys must already be distinct
  static Value from_json(Budget& budget, const OrderedJson& json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(v_); }
  bool is_none() const { return std::holds_alternative<None>(v_); }
  const bool* as_bool() const { return std::get_if<bool>(&v_); }
  const int64_t* as_int() const { return std::get_if<int64_t>(&v_); }
  const double* as_float() const { return std::get_if<double>(&v_); }
  const uint64_t* as_wide() const { return std::get_if<uint64_t>(&v_); }
  bool is_text() const { return text_ptr() != nullptr; }
  const std::string* as_text() const { return text_ptr() ? &text_ptr()->bytes : nullptr; }
  bool is_markup() const { return text_ptr() && text_ptr()->markup; }
  Seq* as_seq() const { return get<Seq>(); }
  const Dict* as_dict() const { return get<const Dict>(); }
  Namespace* as_namespace() const { return get<Namespace>(); }
  Callable* as_callable() const { return get<Callable>(); }
  Loop* as_loop() const { return get<Loop>(); }
  const std::shared_ptr<Loop>& loop() const { return std::get<std::shared_ptr<Loop>>(v_); }
  const std::string& undefined_reason() const;
  const void* identity() const;  // address of the object that is held by reference; else nullptr
  int depth() const;

 private:
  template <class T>
  T* get() const {
    const auto* p = std::get_if<std::shared_ptr<T>>(&v_);
    return p ? p->get() : nullptr;
  }
  const Text* text_ptr() const { return get<const Text>(); }

  std::variant<None, Undefined, bool, int64_t, uint64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<Seq>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
               std::shared_ptr<Callable>, std::shared_ptr<Loop>>
      v_;
};

struct Args {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Interpreter;
// The values that it holds count in `depth`, as in Value::depth. Everything else that it holds must
// be kept alive by the Interpreter and emptied at its end (see ~Interpreter).
struct Callable {
  virtual ~Callable() = default;
  // Charges for the arguments and for the value of bound_to() before they are read.
  Value call(Interpreter& in, Args args);
  virtual std::string repr() const = 0;
  // Returns nullopt if there is no such attribute.
  virtual std::optional<Value> attribute(Budget& budget, const std::string& name) const;
  // Returns the value that a method belongs to and may read; nullptr for other callables.
  virtual const Value* bound_to() const { return nullptr; }
  int depth = 1;

 private:
  virtual Value run(Interpreter& in, Args args) = 0;
};

// Names longer than this are refused where they would be copied: names in a template, keywords,
// attributes of namespaces.
inline constexpr size_t kMaxName = 1024;

// Returns the steps for reading every character or item of a value once, without the contents of
// the items.
uint64_t steps_to_read(const Value& value);
uint64_t steps_to_read(const Args& args);
// Returns the bytes of a copy of the arguments.
uint64_t bytes_of(const Args& args);

// Returns Python's name of the type, for messages.
const char* type_name(const Value& value);
bool truthy(const Value& value);
bool equal(Budget& budget, const Value& a, const Value& b);
// Returns <0, 0 or >0; throws for types that Python does not order.
int compare(Budget& budget, const Value& a, const Value& b);
// Sets *out for an int, or for a bool as an int; returns false for all else, also for integers
// above INT64_MAX.
bool is_integral(const Value& value, int64_t* out);
bool is_number(const Value& value, double* out);
// Returns nullptr if there is no such key.
const Value* find(Budget& budget, const Dict& dict, const Value& key);
const Value* find(Budget& budget, const Dict& dict, std::string_view key);
// Returns the items that a `for` would visit; a generator is used up. Throws if the value cannot be
// iterated.
Values iterate(Budget& budget, const Value& value);
// Computes len(); returns false if the value has none.
bool length(Budget& budget, const Value& value, int64_t* out);
bool contains(Budget& budget, const Value& container, const Value& item);
// Checks a key of a dict: throws for lists and dicts, as Python does.
void check_hashable(Budget& budget, const Value& key);

}  // namespace skiff::jinja
