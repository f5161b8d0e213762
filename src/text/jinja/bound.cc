#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {

Bound::Bound(std::string_view function, const Args& args,
             std::initializer_list<std::string_view> names)
    : function_(function), names_(names), values_(names.size()) {
  if (args.positional.size() > names_.size())
    fail("{}() takes at most {} argument(s), {} given", function_, names_.size(),
         args.positional.size());
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto at = std::find(names_.begin(), names_.end(), name);
    if (at == names_.end())
      fail("{}() got an unexpected keyword argument '{}'", function_, excerpt(name));
    const Value*& slot = values_[static_cast<size_t>(at - names_.begin())];
    if (slot) fail("{}() got multiple values for argument '{}'", function_, excerpt(name));
    slot = &value;
  }
}

const Value& Bound::need(size_t i) const {
  if (!values_[i]) fail("{}() is missing the argument '{}'", function_, names_[i]);
  return *values_[i];
}

const std::string& Bound::text(size_t i) const {
  const std::string* text = need(i).as_text();
  if (!text) fail("{}(): '{}' must be str, not {}", function_, names_[i], type_name(*values_[i]));
  return *text;
}

std::string Bound::text(size_t i, std::string_view fallback) const {
  return !values_[i] || values_[i]->is_none() ? std::string(fallback) : text(i);
}

int64_t Bound::integer(size_t i, int64_t fallback) const {
  int64_t value = fallback;
  if (!values_[i] || values_[i]->is_none()) return fallback;
  if (!is_integral(*values_[i], &value))
    fail("{}(): '{}' must be int, not {}", function_, names_[i], type_name(*values_[i]));
  return value;
}

bool Bound::flag(size_t i, bool fallback) const {
  return values_[i] ? truthy(*values_[i]) : fallback;
}

void takes_nothing(std::string_view function, const Args& args) {
  const Bound none(function, args, {});
}

}  // namespace skiff::jinja
