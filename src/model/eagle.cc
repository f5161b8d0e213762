#include "model/eagle.h"

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "base/load_error.h"
#include "gguf/gguf_files.h"
#include "model/family.h"
#include "model/registry.h"
#include "model/stored_forms.h"
#include "model/stored_numbers.h"
#include "weights/checkpoint.h"

namespace skiff::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBias = "fc.bias";
constexpr const char *kLayerIds = "eagle_aux_hidden_state_layer_ids", *kOptions = "eagle_config";

std::string path_of(const std::string& folder) {
  if (!gguf_file_of(folder).empty())
    fail_load("{}: heads of EAGLE in GGUF files are not supported", folder);
  const std::string path = (fs::path(folder) / "config.json").string();
  if (!fs::exists(path))
    fail_load("--speculative-config: model {} has no config.json; it must be the folder of a head",
              folder);
  return path;
}

Json read_config(const std::string& path) {
  return read_json_file(path, {.max_bytes = 16u << 20, .max_depth = 32});
}

void check_sizes(const std::string& folder, const ModelSpec& head, const ModelSpec& served) {
  const auto check = [&](const char* what, int has, int wants) {
    if (has != wants)
      fail_load("--speculative-config: the head in {} has a {} of {}, the served model of {}",
                folder, what, has, wants);
  };
  check("hidden size", head.hidden, served.hidden);
  check("vocabulary", head.vocab, served.vocab);
  if (head.join == ModelSpec::kBeside)
    check("number of layers of the model that it takes", head.join_rows,
          static_cast<int>(served.taps.size()));
}

// Returns whether the projection has a bias. Where the configuration does not say so, its tensors
// do.
bool has_bias(const std::string& folder, const Fields& config) {
  if (config.has("bias") || !has_weight_files(folder)) return config.get<bool>("bias", false);
  const Checkpoint checkpoint(folder);
  return checkpoint.find(kBias) || checkpoint.find("model." + std::string(kBias));
}

// Returns the list of layers that the configuration has, or null if it has none: some writers put
// null there.
const Json* layer_ids(const Json& config) {
  for (const Json* at : {&config, config.contains(kOptions) ? &config[kOptions] : nullptr})
    if (at != nullptr && at->is_object() && at->contains(kLayerIds) && !(*at)[kLayerIds].is_null())
      return &(*at)[kLayerIds];
  return nullptr;
}

}  // namespace

ModelConfig find_eagle(const std::string& folder, bool third, const ModelConfig& served) {
  const std::string path = path_of(folder);
  const Json json = read_config(path);
  const Fields config(json, path);
  const Family& family = *find_family(third ? "Eagle3ForCausalLM" : "EagleForCausalLM");
  ModelConfig out;
  out.spec = family.describe(config);
  out.spec.arch = family.arch;
  out.quantization = read_quantization(folder, config);
  out.spec.join_bias = has_bias(folder, config);
  if (third) out.spec.join_rows = static_cast<int>(eagle_taps(folder, served.spec).size());
  check_sizes(folder, out.spec, served.spec);
  return out;
}

std::vector<int> eagle_taps(const std::string& folder, const ModelSpec& served) {
  const std::string path = path_of(folder);
  const Json json = read_config(path);
  const auto layers = static_cast<int>(served.layers.size());
  const Json* ids = layer_ids(json);
  if (ids == nullptr) {
    if (layers < 6)
      fail_load(
          "{}: \"{}\" is missing, and the served model's {} layers are too few for the usual three",
          path, kLayerIds, layers);
    return {2, layers / 2, layers - 3};
  }
  constexpr size_t kMostTaps = 16;
  std::vector<int> taps;
  for (const Json& id : ids->is_array() ? *ids : Json::array()) {
    const std::optional<int> layer = int_in(id, 0, layers);
    if (!layer)
      fail_load("{}: \"{}\" has {}; the served model has {} layers", path, kLayerIds,
                id.dump().substr(0, 80), layers);
    taps.push_back(*layer);
  }
  if (taps.empty() || taps.size() > kMostTaps)
    fail_load("{}: \"{}\" must be a list of 1 to {} layers", path, kLayerIds, kMostTaps);
  return taps;
}

std::vector<int32_t> eagle_tokens(const std::string& folder, const ModelSpec& spec) {
  const Checkpoint checkpoint(folder);
  const StoredTensor* ids = checkpoint.find(kDraftIds);
  const int rows = spec.head_rows();
  if (ids == nullptr) {
    if (rows == spec.vocab) return {};
    fail_load("{}: tensor \"{}\" is missing: the head has {} of {} tokens", folder, kDraftIds, rows,
              spec.vocab);
  }
  if (ids->entry->dtype != "I64" || ids->entry->shape != std::vector<int64_t>{rows})
    fail_load("{}: tensor \"{}\" must be {} numbers of I64", folder, kDraftIds, rows);
  std::vector<int32_t> tokens;
  for (int row = 0; row < rows; ++row) {
    const auto more = stored<int64_t>(*ids, row);
    if (more < -row || more >= spec.vocab - row)
      fail_load("{}: tensor \"{}\" has {} for row {}, which is none of {} tokens", folder,
                kDraftIds, more, row, spec.vocab);
    tokens.push_back(static_cast<int32_t>(row + more));
  }
  return tokens;
}

}  // namespace skiff::model
