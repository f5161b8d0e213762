// grammar/tag_fields.h -- the members of the objects of a structural tag, checked. All of these
// throw Refusal with the JSON pointer of the place; `path` is that of the object.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "grammar/refusal.h"

namespace skiff::grammar {

[[noreturn]] inline void refuse_at(const std::string& path, const std::string& what,
                                   Code code = Code::kInvalid) {
  throw Refusal(what, path, code);
}

const OrderedJson& need_member(const OrderedJson& at, const char* key, const std::string& path);
// `value` is a string, and `path` its own.
std::string text_of(const OrderedJson& value, const std::string& path);
std::string text_member(const OrderedJson& at, const char* key, const std::string& path);
// A text, or a list of them, with at least one.
std::vector<std::string> texts_member(const OrderedJson& at, const char* key,
                                      const std::string& path);
// False where there is none.
bool switch_member(const OrderedJson& at, const char* key, const std::string& path);
// A list with entries.
const OrderedJson& list_member(const OrderedJson& at, const char* key, const std::string& path);
// A number up to 10,000; `fallback` where there is none, or -1.
uint32_t count_member(const OrderedJson& at, const char* key, uint32_t fallback,
                      const std::string& path);

}  // namespace skiff::grammar
