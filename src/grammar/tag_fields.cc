#include "grammar/tag_fields.h"

#include "grammar/mended_text.h"

namespace skiff::grammar {

std::string text_of(const OrderedJson& value, const std::string& path) {
  auto text = value.get<std::string>();
  if (is_mended(text)) refuse_at(path, fmt::format("this text {}", kMended));
  return text;
}

const OrderedJson& need_member(const OrderedJson& at, const char* key, const std::string& path) {
  if (!at.is_object() || !at.contains(key)) refuse_at(path, fmt::format("\"{}\" is missing", key));
  return at[key];
}

std::string text_member(const OrderedJson& at, const char* key, const std::string& path) {
  const OrderedJson& value = need_member(at, key, path);
  if (!value.is_string()) refuse_at(path + "/" + key, fmt::format("\"{}\" must be a string", key));
  return text_of(value, path + "/" + key);
}

std::vector<std::string> texts_member(const OrderedJson& at, const char* key,
                                      const std::string& path) {
  const OrderedJson& value = need_member(at, key, path);
  std::vector<std::string> out;
  const std::string place = path + "/" + key;
  if (value.is_string()) out.push_back(text_of(value, place));
  if (value.is_array())
    for (const OrderedJson& one : value)
      if (one.is_string()) out.push_back(text_of(one, place));
  if (out.empty() || (value.is_array() && out.size() != value.size()))
    refuse_at(place, fmt::format("\"{}\" must be a list of strings", key));
  return out;
}

bool switch_member(const OrderedJson& at, const char* key, const std::string& path) {
  if (!at.contains(key)) return false;
  if (!at[key].is_boolean())
    refuse_at(path + "/" + key, fmt::format("\"{}\" must be true or false", key));
  return at[key].get<bool>();
}

const OrderedJson& list_member(const OrderedJson& at, const char* key, const std::string& path) {
  const OrderedJson& value = need_member(at, key, path);
  if (!value.is_array() || value.empty())
    refuse_at(path + "/" + key, fmt::format("\"{}\" must be a list with entries", key));
  return value;
}

uint32_t count_member(const OrderedJson& at, const char* key, uint32_t fallback,
                      const std::string& path) {
  constexpr uint32_t kMost = 10'000;
  if (!at.contains(key) || at[key] == -1) return fallback;
  if (!at[key].is_number_unsigned() || at[key].get<uint64_t>() > kMost)
    refuse_at(path + "/" + key, fmt::format("\"{}\" must be a number up to {}", key, kMost));
  return at[key].get<uint32_t>();
}

}  // namespace skiff::grammar
