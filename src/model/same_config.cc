#include "model/same_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace skiff::model {
namespace {

constexpr std::string_view kOfNoModel[] = {"_name_or_path", "transformers_version", "torch_dtype",
                                           "dtype", "use_cache"};

std::string shown(const Json& object, const std::string& key) {
  constexpr size_t kMost = 80;
  const auto found = object.find(key);
  if (found == object.end()) return "not there";
  return found->dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, kMost);
}

}  // namespace

Status check_same_config(const Json& mine, const Json& other) {
  if (!mine.is_object() || !other.is_object())
    return Error{Code::kInvalid, "config.json is no object", "path"};
  for (const Json* side : {&mine, &other})
    for (const auto& [key, value] : side->items()) {
      if (std::ranges::find(kOfNoModel, key) != std::end(kOfNoModel)) continue;
      const auto here = mine.find(key), there = other.find(key);
      if (here != mine.end() && there != other.end() && *here == *there) continue;
      return Error{
          Code::kInvalid,
          fmt::format("\"{}\" is {} in this server's config.json and {} in that of the new "
                      "weights: another model needs a server of its own",
                      key, shown(mine, key), shown(other, key)),
          "path"};
    }
  return ok();
}

}  // namespace skiff::model
