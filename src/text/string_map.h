// text/string_map.h -- a hash map from strings that is looked up by string_view.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace skiff::text {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

template <class T>
using StringMap = std::unordered_map<std::string, T, StringHash, std::equal_to<>>;

}  // namespace skiff::text
