#include "model/config.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/json.h"
#include "base/log.h"
#include "base/nearest.h"
#include "gguf/gguf_files.h"
#include "model/gguf_config.h"
#include "model/registry.h"
#include "weights/name_list.h"

namespace skiff::model {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_unknown(const std::string& where, std::string arch) {
  arch.resize(std::min<size_t>(arch.size(), 100));
  const auto known = known_architectures();
  const auto nearest =
      std::ranges::min(known, {}, [&](std::string_view k) { return edit_distance(arch, k); });
  fail_load("{}: architecture \"{}\" is not supported (nearest: {}); known: {}", where,
            escaped(arch), nearest, name_list(known, 1000));
}

// The class that `architecture` names is stored as one of its family's.
const Family& family_of(const Fields& config, Architecture& architecture) {
  const auto names = config.need<std::vector<std::string>>("architectures");
  if (names.empty()) fail_load("{}: \"architectures\" is empty", config.where());
  architecture = read_architecture(names[0]);
  const Family* family = find_family(architecture.causal);
  if (!family) fail_unknown(config.where(), names[0]);
  return *family;
}

int32_t token_id(const Json& value, const Fields& config, std::string_view key) {
  const std::optional<int> id = int_in(value, -1, kMaxVocab);
  if (!id)
    fail_load("{}: \"{}\" holds {}, not a token id", config.where(), key,
              value.dump().substr(0, 80));
  return *id;
}

// The value is an id or a list of ids; negative ones stand for "none" and are left out.
std::vector<int32_t> token_ids(const Fields& config, const std::string& key) {
  if (!config.has(key)) return {};
  const Json& value = config.json().at(key);
  std::vector<int32_t> ids;
  for (const Json& id : value.is_array() ? value : Json::array({value}))
    if (const int32_t token = token_id(id, config, key); token >= 0) ids.push_back(token);
  return ids;
}

// Puts the ids of `config` before those that are known already, each id once.
void add_eos(const Fields& config, std::vector<int32_t>& eos) {
  std::vector<int32_t> all = token_ids(config, "eos_token_id");
  all.insert(all.end(), eos.begin(), eos.end());
  eos.clear();
  for (const int32_t id : all)
    if (std::ranges::find(eos, id) == eos.end()) eos.push_back(id);
}

float bounded(const Fields& config, std::string_view key, float fallback, float min, float max) {
  return static_cast<float>(get_number(config, key, fallback, min, max));
}

void read_tokens(const Fields& config, GenerationDefaults& out) {
  add_eos(config, out.eos);
  if (const auto ids = token_ids(config, "bos_token_id"); !ids.empty()) out.bos = ids[0];
}

void read_sampling(const Fields& config, GenerationDefaults& out) {
  out.do_sample = config.get<bool>("do_sample", out.do_sample);
  out.temperature = bounded(config, "temperature", out.temperature, 0, 100);
  out.top_p = bounded(config, "top_p", out.top_p, 0, 1);
  out.min_p = bounded(config, "min_p", out.min_p, 0, 1);
  out.repetition = bounded(config, "repetition_penalty", out.repetition, 0.01f, 100);
  out.top_k = get_int(config, "top_k", out.top_k, -1, kMaxVocab);
  if (config.has("max_new_tokens"))
    out.max_new_tokens = need_int(config, "max_new_tokens", 1, 1 << 30);
}

// Old folders have the parameters of sampling in config.json, which are ignored where there is a
// generation_config.json.
void read_folder_generation(const std::string& dir, const Fields& config, GenerationDefaults& out) {
  const std::string path = (fs::path(dir) / "generation_config.json").string();
  if (!fs::exists(path)) return read_sampling(config, out);
  const Json json = read_json_file(path, {.max_bytes = 16u << 20, .max_depth = 32});
  const Fields defaults(json, path);
  read_tokens(defaults, out);
  read_sampling(defaults, out);
}

// Some architectures store the rows of q and k so that rope rotates neighbouring dimensions.
void pair_neighbours(ModelSpec& spec, const Json& config) {
  if (config.value("rope_interleaved", false))
    for_each_gqa(spec, [](Gqa& m) { m.rope.interleaved = true; });
}

}  // namespace

ModelConfig read_model_config(const std::string& dir, const std::string& config_name,
                              const PoolingChoice& pooling) {
  const std::string gguf = gguf_file_of(dir);
  const std::string path = gguf.empty() ? (fs::path(dir) / config_name).string() : gguf;
  const GgufModel file = gguf.empty() ? GgufModel{} : read_gguf(gguf);
  const Json json = gguf.empty() ? read_json_file(path, {.max_bytes = 16u << 20, .max_depth = 32})
                                 : config_of_gguf(file.header, gguf);
  const Fields config(json, gguf.empty() ? path : gguf + ", in the keys of a config.json");
  Architecture architecture;
  const Family& family = family_of(config, architecture);
  ModelConfig out;
  out.spec = family.describe(config);
  if (out.spec.joins)
    fail_load(
        "{}: {} is no model but a module that drafts for one; name it as \"model\" of "
        "--speculative-config with the method mtp",
        config.where(), family.arch);
  out.spec.arch = family.arch;
  out.dtype = config.get<std::string>("dtype", config.get<std::string>("torch_dtype", ""));
  out.quantization = gguf.empty() ? read_quantization(dir, config) : gguf_quantization(gguf);
  out.pooling = choose_pooling(gguf.empty() ? dir : "", config, architecture, pooling, out.spec);
  read_tokens(config, out.generation);
  if (!gguf.empty()) {
    out.quantization.about = types_of_gguf(file.header);
    read_sampling(config, out.generation);
    pair_neighbours(out.spec, json);
    scale_gguf_rope(out.spec, file);
    return out;
  }
  read_folder_generation(dir, config, out.generation);
  return out;
}

}  // namespace skiff::model
