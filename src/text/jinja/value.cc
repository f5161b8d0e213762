#include "text/jinja/value.h"

#include <algorithm>
#include <limits>

#include "text/jinja/loop.h"
#include "text/jinja/search.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

int nested_depth(const Budget& budget, int deepest) {
  if (deepest >= budget.limits().depth)
    fail("values are nested deeper than {}", budget.limits().depth);
  return deepest + 1;
}

bool both_numbers(const Value& a, const Value& b, double* x, double* y) {
  return is_number(a, x) && is_number(b, y);
}

constexpr uint64_t kTextHead = 64;  // bytes that a text takes in addition to its content

int sign(auto a, auto b) { return a < b ? -1 : a > b ? 1 : 0; }

int compare_numbers(const Value& a, const Value& b) {
  int64_t i, j;
  if (is_integral(a, &i) && is_integral(b, &j)) return sign(i, j);
  if (a.as_wide() && b.as_wide()) return sign(*a.as_wide(), *b.as_wide());
  if (a.as_wide() && is_integral(b, &j)) return 1;
  if (is_integral(a, &i) && b.as_wide()) return -1;
  double x = 0, y = 0;
  both_numbers(a, b, &x, &y);
  return sign(x, y);
}

bool equal_texts(Budget& budget, std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  budget.step(a.size() / 256);
  return a == b;
}

bool equal_dicts(Budget& budget, const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = find(budget, b, key);
    if (!other || !equal(budget, value, *other)) return false;
  }
  return true;
}

bool equal_seqs(Budget& budget, const Seq& a, const Seq& b) {
  const bool comparable = a.form == b.form && a.form != Seq::Form::kGenerator;
  if (!comparable || a.items.size() != b.items.size()) return &a == &b;
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(),
                    [&](const Value& x, const Value& y) { return equal(budget, x, y); });
}

}  // namespace

Value Value::undefined(std::string why) {
  Value value;
  value.v_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

Value Value::wide(uint64_t i) {
  Value value;
  value.v_ = i;
  return value;
}

Value Value::seq(Budget& budget, Seq::Form form, Values items, std::string label) {
  budget.make(64 + items.size() * sizeof(Value));
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  const int depth = nested_depth(budget, deepest);
  Value value;
  value.v_ = std::make_shared<Seq>(Seq{form, std::move(items), std::move(label), depth});
  return value;
}

Value Value::dict(Budget& budget, Pairs items) {
  budget.make(64 + items.size() * 2 * sizeof(Value));
  int deepest = 0;
  for (const auto& [key, item] : items) deepest = std::max({deepest, key.depth(), item.depth()});
  const int depth = nested_depth(budget, deepest);
  Value value;
  value.v_ = std::make_shared<const Dict>(Dict{std::move(items), depth});
  return value;
}

Value Value::from_json(Budget& budget, const OrderedJson& json) {
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return json.get<bool>();
    case OrderedJson::value_t::number_integer:
      return json.get<int64_t>();
    case OrderedJson::value_t::number_unsigned:
      if (json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
        return wide(json.get<uint64_t>());
      return json.get<int64_t>();
    case OrderedJson::value_t::number_float:
      return json.get<double>();
    case OrderedJson::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      budget.make(kTextHead + text.size());
      return text;
    }
    case OrderedJson::value_t::array: {
      budget.make_many(json.size(), sizeof(Value));
      Values items;
      for (const auto& item : json) items.push_back(from_json(budget, item));
      return list(budget, std::move(items));
    }
    case OrderedJson::value_t::object: {
      budget.make_many(json.size(), 2 * sizeof(Value));
      Pairs items;
      for (const auto& [key, item] : json.items()) {
        budget.make(kTextHead + key.size());
        items.emplace_back(key, from_json(budget, item));
      }
      return dict(budget, std::move(items));
    }
    default:
      return {};
  }
}

Value Value::callable(Budget& budget, std::shared_ptr<Callable> callable) {
  budget.make(128);
  nested_depth(budget, callable->depth - 1);
  Value value;
  value.v_ = std::move(callable);
  return value;
}

std::optional<Value> Callable::attribute(Budget&, const std::string&) const { return std::nullopt; }

uint64_t steps_to_read(const Value& value) {
  if (const std::string* text = value.as_text()) return text->size() / 64;
  if (const Seq* seq = value.as_seq()) return seq->items.size() / 64;
  if (const Dict* dict = value.as_dict()) return dict->items.size() / 64;
  return 0;
}

uint64_t steps_to_read(const Args& args) {
  uint64_t steps = (args.positional.size() + args.named.size()) / 4;
  for (const Value& value : args.positional) steps += steps_to_read(value);
  for (const auto& [name, value] : args.named) steps += steps_to_read(value);
  return steps;
}

uint64_t bytes_of(const Args& args) {
  uint64_t bytes = args.positional.size() * sizeof(Value);
  for (const auto& [name, value] : args.named) bytes += sizeof(args.named[0]) + name.size();
  return bytes;
}

const std::string& Value::undefined_reason() const { return *std::get<Undefined>(v_).why; }

const void* Value::identity() const {
  return std::visit(
      [](const auto& held) -> const void* {
        if constexpr (requires { held.get(); }) return held.get();
        return nullptr;
      },
      v_);
}

int Value::depth() const {
  if (const Seq* s = as_seq()) return s->depth;
  if (const Dict* d = as_dict()) return d->depth;
  if (const Callable* c = as_callable()) return c->depth;
  if (const Loop* l = as_loop()) return l->depth;
  return 0;
}

const char* type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.as_bool()) return "bool";
  if (value.as_int() || value.as_wide()) return "int";
  if (value.as_float()) return "float";
  if (value.is_text()) return "str";
  if (value.as_dict()) return "dict";
  if (value.as_namespace()) return "Namespace";
  if (value.as_loop()) return "LoopContext";
  if (value.as_callable()) return "function";
  switch (value.as_seq()->form) {
    case Seq::Form::kList:
      return "list";
    case Seq::Form::kTuple:
      return "tuple";
    case Seq::Form::kGenerator:
      return "generator";
    case Seq::Form::kView:
      return "dict view";
    case Seq::Form::kRange:
      return "range";
  }
  return "?";
}

bool is_integral(const Value& value, int64_t* out) {
  if (const int64_t* i = value.as_int()) return *out = *i, true;
  if (const bool* b = value.as_bool()) return *out = *b, true;
  return false;
}

bool is_number(const Value& value, double* out) {
  int64_t i;
  if (is_integral(value, &i)) return *out = static_cast<double>(i), true;
  if (const double* d = value.as_float()) return *out = *d, true;
  if (const uint64_t* u = value.as_wide()) return *out = static_cast<double>(*u), true;
  return false;
}

bool truthy(const Value& value) {
  double number;
  if (is_number(value, &number)) return number != 0;
  if (value.is_none() || value.is_undefined()) return false;
  if (const std::string* s = value.as_text()) return !s->empty();
  if (const Dict* d = value.as_dict()) return !d->items.empty();
  if (const Seq* s = value.as_seq()) return s->form == Seq::Form::kGenerator || !s->items.empty();
  return true;
}

bool equal(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  double x, y;
  if (both_numbers(a, b, &x, &y)) return x == x && y == y && compare_numbers(a, b) == 0;
  if (a.is_text() && b.is_text()) return equal_texts(budget, *a.as_text(), *b.as_text());
  if (a.is_none() || a.is_undefined())
    return a.is_none() == b.is_none() && a.is_undefined() == b.is_undefined();
  if (a.as_seq() && b.as_seq()) return equal_seqs(budget, *a.as_seq(), *b.as_seq());
  if (a.as_dict() && b.as_dict()) return equal_dicts(budget, *a.as_dict(), *b.as_dict());
  return a.identity() && a.identity() == b.identity();
}

int compare(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  if (a.is_undefined()) fail("{}", a.undefined_reason());
  if (b.is_undefined()) fail("{}", b.undefined_reason());
  double x, y;
  if (both_numbers(a, b, &x, &y)) return compare_numbers(a, b);
  // UTF-8 orders as code points do.
  if (a.is_text() && b.is_text()) {
    budget.step(std::min(a.as_text()->size(), b.as_text()->size()) / 256);
    return a.as_text()->compare(*b.as_text());
  }
  const Seq *s = a.as_seq(), *t = b.as_seq();
  if (!s || !t || s->form != t->form || s->form > Seq::Form::kTuple)
    fail("'{}' and '{}' have no order", type_name(a), type_name(b));
  for (size_t i = 0; i < std::min(s->items.size(), t->items.size()); ++i)
    if (!equal(budget, s->items[i], t->items[i])) return compare(budget, s->items[i], t->items[i]);
  return sign(s->items.size(), t->items.size());
}

const Value* find(Budget& budget, const Dict& dict, const Value& key) {
  if (const std::string* name = key.as_text()) return find(budget, dict, std::string_view(*name));
  budget.step(dict.items.size() / 16);
  for (const auto& [k, value] : dict.items)
    if (equal(budget, k, key)) return &value;
  return nullptr;
}

const Value* find(Budget& budget, const Dict& dict, std::string_view key) {
  budget.step(dict.items.size() / 16);
  for (const auto& [k, value] : dict.items)
    if (k.is_text() && equal_texts(budget, *k.as_text(), key)) return &value;
  return nullptr;
}

void check_hashable(Budget& budget, const Value& key) {
  budget.step();
  if (key.as_dict()) fail("unhashable type: 'dict'");
  const Seq* seq = key.as_seq();
  if (!seq) return;
  if (seq->form == Seq::Form::kList) fail("unhashable type: 'list'");
  if (seq->form == Seq::Form::kTuple)
    for (const Value& item : seq->items) check_hashable(budget, item);
}

Values iterate(Budget& budget, const Value& value) {
  if (value.is_undefined()) return {};
  Values items;
  if (const std::string* text = value.as_text()) {
    budget.make(text->size() * 64);
    for (std::string_view rest = *text; !rest.empty();) {
      const size_t n = character_length(rest);
      items.emplace_back(std::string(rest.substr(0, n)));
      rest.remove_prefix(n);
    }
    return items;
  }
  if (const Dict* dict = value.as_dict()) {
    budget.make(dict->items.size() * sizeof(Value));
    for (const auto& [key, unused] : dict->items) items.push_back(key);
    return items;
  }
  if (Seq* seq = value.as_seq()) {
    budget.make(seq->items.size() * sizeof(Value));
    if (seq->form != Seq::Form::kGenerator) return seq->items;
    return std::exchange(seq->items, {});
  }
  fail("'{}' object is not iterable", type_name(value));
}

bool length(Budget& budget, const Value& value, int64_t* out) {
  if (value.is_undefined()) return *out = 0, true;
  if (const std::string* text = value.as_text()) {
    budget.step(text->size() / 64);
    return *out = static_cast<int64_t>(count_characters(*text)), true;
  }
  if (const Dict* dict = value.as_dict())
    return *out = static_cast<int64_t>(dict->items.size()), true;
  const Seq* seq = value.as_seq();
  if (!seq || seq->form == Seq::Form::kGenerator) return false;
  return *out = static_cast<int64_t>(seq->items.size()), true;
}

bool contains(Budget& budget, const Value& container, const Value& item) {
  if (const std::string* text = container.as_text()) {
    if (!item.is_text())
      fail("'in <string>' requires string as left operand, not {}", type_name(item));
    budget.step((text->size() + item.as_text()->size()) / 64);
    return find_text(*text, *item.as_text()) != std::string::npos;
  }
  if (const Dict* dict = container.as_dict()) {
    check_hashable(budget, item);
    return find(budget, *dict, item) != nullptr;
  }
  if (!container.as_seq() && !container.is_undefined())
    fail("argument of type '{}' is not iterable", type_name(container));
  for (const Value& other : iterate(budget, container))
    if (equal(budget, other, item)) return true;
  return false;
}

}  // namespace skiff::jinja
