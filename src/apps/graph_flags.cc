#include "apps/graph_flags.h"

#include <spdlog/spdlog.h>

#include "base/json.h"
#include "base/load_error.h"

namespace skiff::apps {
namespace {

constexpr const char* kFlag = "--graph-optimization-config";
constexpr int kMaxSeqs = 1 << 14;

std::vector<int> sizes_of(const Json& list) {
  std::vector<int> sizes;
  for (const Json& size : list) {
    if (!size.is_number_integer() || size < 1 || size > kMaxSeqs)
      fail_load("{}: cudagraph_capture_sizes holds {}; it must be numbers from 1 to {}", kFlag,
                size.dump(), kMaxSeqs);
    sizes.push_back(size.get<int>());
  }
  return sizes;
}

}  // namespace

void read_graphs(const Args& args, engine::EngineConfig& config) {
  config.graphs = args.on("use-cudagraph");
  config.fuse_single_row = args.on("fuse-single-row");
  config.batch_invariant = args.on("batch-invariant");
  const std::string text = args.text("graph-optimization-config");
  if (text.empty()) return;
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail_load("{} is not a JSON object: {}", kFlag, text);
  for (const auto& [key, value] : json.items()) {
    if (key == "use_cudagraph" && value.is_boolean()) {
      config.graphs = config.graphs && value.get<bool>();
    } else if (key == "cudagraph_capture_sizes" && value.is_array()) {
      config.capture_sizes = sizes_of(value);
    } else if (key == "graph_opt_level") {
      spdlog::warn("{}: graph_opt_level has no effect", kFlag);
    } else {
      fail_load(
          "{}: \"{}\" is {}; known are use_cudagraph (true or false) and "
          "cudagraph_capture_sizes (a list of numbers)",
          kFlag, key, value.dump());
    }
  }
}

}  // namespace skiff::apps
