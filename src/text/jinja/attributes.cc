// What `object.name`, `object[key]` and `object[start:stop:step]` mean.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

std::string object_name(const Value& object) {
  return object.is_none() ? "None" : std::string(type_name(object)) + " object";
}

Value no_attribute(Interpreter& in, const Value& object, std::string_view name) {
  in.budget().make(192);
  return Value::undefined(
      fmt::format("'{}' has no attribute '{}'", object_name(object), excerpt(name)));
}

// Returns an attribute of the object itself, not one of its items; undefined if there is none.
Value own_attribute(Interpreter& in, const Value& object, const std::string& name) {
  if (object.is_undefined()) fail("{}", object.undefined_reason());
  if (name.size() > kMaxName) return no_attribute(in, object, name);
  if (const Namespace* space = object.as_namespace()) {
    in.budget().step(space->items.size() / 16);
    for (const auto& [key, value] : space->items)
      if (key == name) return value;
    return no_attribute(in, object, name);
  }
  if (object.as_loop()) return loop_attribute(in, object, name);
  if (const Callable* callable = object.as_callable()) {
    const auto value = callable->attribute(in.budget(), name);
    return value ? *value : no_attribute(in, object, name);
  }
  if (const Seq* seq = object.as_seq(); seq && seq->label == kGroupLabel) {
    if (name == "grouper") return seq->items[0];
    if (name == "list") return seq->items[1];
  }
  const Value method = method_of(in, object, name);
  return method.is_none() ? no_attribute(in, object, name) : method;
}

// Python's slice.indices().
struct Range {
  int64_t start, stop, step;
};
Range resolve(int64_t n, const Value& start, const Value& stop, const Value& step) {
  const auto integer = [](const Value& v, int64_t fallback) {
    int64_t i = fallback;
    if (!v.is_none() && !is_integral(v, &i)) fail("slice indices must be integers or None");
    return i;
  };
  const int64_t by = integer(step, 1);
  if (by == 0) fail("slice step cannot be zero");
  const int64_t low = by < 0 ? -1 : 0, high = by < 0 ? n - 1 : n;
  const auto bound = [&](const Value& v, int64_t fallback) {
    int64_t i = integer(v, fallback);
    if (v.is_none()) return fallback;
    if (i < 0) i = i < -n ? low : i + n;
    return std::clamp(i, low, std::max(low, high));
  };
  return {bound(start, by < 0 ? high : low), bound(stop, by < 0 ? low : high), by};
}

template <class Visit>
void visit(const Range& range, Visit take) {
  if (range.step > 0)
    for (int64_t i = range.start; i < range.stop;) {
      take(i);
      if (__builtin_add_overflow(i, range.step, &i)) break;
    }
  else
    for (int64_t i = range.start; i > range.stop;) {
      take(i);
      if (__builtin_add_overflow(i, range.step, &i)) break;
    }
}

Value text_slice(Interpreter& in, const Value& object, const Range& range) {
  const std::string& text = *object.as_text();
  in.budget().make(text.size());
  if (range.step == 1) {
    if (range.start >= range.stop) return Value(std::string(), object.is_markup());
    const size_t begin = character_offset(text, static_cast<size_t>(range.start));
    const std::string_view rest = std::string_view(text).substr(begin);
    const size_t count = character_offset(rest, static_cast<size_t>(range.stop - range.start));
    return Value(std::string(rest.substr(0, count)), object.is_markup());
  }
  const Values characters = iterate(in.budget(), object);
  std::string out;
  visit(range, [&](int64_t i) { out += *characters[static_cast<size_t>(i)].as_text(); });
  return Value(std::move(out), object.is_markup());
}

Value item_at(Interpreter& in, const Value& object, int64_t i) {
  const auto missing = [&] {
    in.budget().make(192);
    return Value::undefined(fmt::format("'{}' has no item {}", object_name(object), i));
  };
  int64_t n = 0;
  if (!length(in.budget(), object, &n)) return missing();
  if (i < 0) i += n;
  if (i < 0 || i >= n) return missing();
  if (const Seq* seq = object.as_seq())
    return seq->form == Seq::Form::kView ? missing() : seq->items[static_cast<size_t>(i)];
  return text_slice(in, object, {i, i + 1, 1});
}

}  // namespace

Value Interpreter::attribute(const Value& object, const std::string& name) {
  if (const Dict* dict = object.as_dict()) {
    Value method = method_of(*this, object, name);
    if (!method.is_none()) return method;
    const Value* item = jinja::find(budget_, *dict, std::string_view(name));
    return item ? *item : no_attribute(*this, object, name);
  }
  return own_attribute(*this, object, name);
}

Value Interpreter::index(const Value& object, const Value& key) {
  if (object.is_undefined()) fail("{}", object.undefined_reason());
  if (const Dict* dict = object.as_dict()) {
    const bool hashable =
        !key.as_dict() && !(key.as_seq() && key.as_seq()->form == Seq::Form::kList);
    const Value* item = hashable ? jinja::find(budget_, *dict, key) : nullptr;
    if (item) return *item;
  }
  int64_t i;
  if ((object.as_seq() || object.is_text()) && is_integral(key, &i))
    return item_at(*this, object, i);
  if (key.is_text()) return own_attribute(*this, object, *key.as_text());
  budget_.make(192);
  return Value::undefined(
      fmt::format("'{}' has no item {}", object_name(object), excerpt(repr(budget_, key))));
}

Value Interpreter::slice(const Value& object, const Value& start, const Value& stop,
                         const Value& step) {
  if (object.is_undefined()) fail("{}", object.undefined_reason());
  const Seq* seq = object.as_seq();
  const bool sliceable = object.is_text() || (seq && seq->form != Seq::Form::kGenerator &&
                                              seq->form != Seq::Form::kView);
  if (!sliceable) fail("'{}' object cannot be sliced", type_name(object));
  int64_t n = 0;
  length(budget_, object, &n);
  const Range range = resolve(n, start, stop, step);
  if (!seq) return text_slice(*this, object, range);
  Values items;
  visit(range, [&](int64_t i) { items.push_back(seq->items[static_cast<size_t>(i)]); });
  const bool tuple = seq->form == Seq::Form::kTuple;
  return Value::seq(budget_, tuple ? Seq::Form::kTuple : Seq::Form::kList, std::move(items));
}

Value attribute_path(Interpreter& in, const Value& item, const Value& path) {
  if (!path.is_text()) return in.index(item, path);
  in.budget().make(path.as_text()->size());  // the copies of its parts, for every item
  Value value = item;
  std::string_view rest = *path.as_text();
  for (bool more = true; more;) {
    const size_t dot = rest.find('.');
    in.budget().step();
    const std::string part(rest.substr(0, dot));
    more = dot != rest.npos;
    if (more) rest.remove_prefix(dot + 1);
    const bool number =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    value = in.index(value, number ? Value(int64_t{std::stol(part)}) : Value(part));
  }
  return value;
}

}  // namespace skiff::jinja
