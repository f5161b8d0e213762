#include "model/mtp.h"

#include <algorithm>
#include <filesystem>

#include "arch/shard.h"
#include "base/json.h"
#include "base/load_error.h"
#include "gguf/gguf_files.h"
#include "model/registry.h"

namespace skiff::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kErnieModule = "Ernie4_5_MTPForCausalLM";

// The families that have modules, and those of the modules.
constexpr std::pair<std::string_view, std::string_view> kModules[] = {
    {"Ernie4_5ForCausalLM", kErnieModule},
    {"Ernie4_5_ForCausalLM", kErnieModule},
    {"Ernie4_5_MoeForCausalLM", kErnieModule},
    {"DeepseekV3ForCausalLM", "DeepSeekMTPModel"},
};

const Family& module_of(const std::string& arch) {
  const auto* found =
      std::ranges::find(kModules, arch, &std::pair<std::string_view, std::string_view>::first);
  if (found == std::end(kModules))
    fail_load(
        "--speculative-config: method mtp needs a model that has an MTP module, and {} has none; "
        "there are ERNIE 4.5's and DeepSeek-V3's",
        arch);
  return *find_family(found->second);
}

std::string folder_of(const std::string& dir, const std::string& given) {
  if (!given.empty()) return given;
  const fs::path apart = fs::path(dir) / "mtp";
  return fs::exists(apart / "config.json") ? apart.string() : dir;
}

void check_sizes(const std::string& folder, const ModelSpec& module, const ModelSpec& served) {
  const auto check = [&](const char* what, int has, int wants) {
    if (has != wants)
      fail_load("--speculative-config: the MTP module in {} has a {} of {}, the served model of {}",
                folder, what, has, wants);
  };
  check("hidden size", module.hidden, served.hidden);
  check("vocabulary", module.vocab, served.vocab);
}

// Whether experts that are always on are computed apart is the same as in the served model.
void separate_as(ModelSpec& module, const ModelSpec& served) {
  const bool apart = std::ranges::any_of(served.layers, [](const Layer& layer) {
    const auto* moe = std::get_if<Moe>(&layer.ffn);
    return moe != nullptr && moe->shared_width > 0;
  });
  if (apart) separate_shared_experts(module);
}

}  // namespace

MtpModule find_mtp(const std::string& dir, const std::string& given, const ModelConfig& served) {
  const Family& family = module_of(served.spec.arch);
  MtpModule out{.folder = folder_of(dir, given), .config = {}};
  if (!gguf_file_of(out.folder).empty())
    fail_load("{}: MTP modules of GGUF files are not supported", out.folder);
  const std::string path = (fs::path(out.folder) / "config.json").string();
  const Json json = read_json_file(path, {.max_bytes = 16u << 20, .max_depth = 32});
  const Fields config(json, path);
  out.config.spec = family.describe(config);
  out.config.spec.arch = family.arch;
  out.config.quantization = read_quantization(out.folder, config);
  check_sizes(out.folder, out.config.spec, served.spec);
  separate_as(out.config.spec, served.spec);
  return out;
}

bool has_own_norm(const ModelSpec& module) {
  const Family* family = find_family(module.arch);
  SKIFF_CHECK(family != nullptr && module.joins, "{} is no module", module.arch);
  const std::vector<NameRule> rules = family->names();
  return std::ranges::find(rules, "norm", &NameRule::slot) != rules.end();
}

void share_weights(const ModelSpec& spec, ModelWeights& module, const ModelWeights& served) {
  SKIFF_CHECK(spec.joins, "{} is no module", spec.arch);
  module.embed = served.embed;
  if (spec.join != ModelSpec::kBeside) module.head = served.head;
  if (!has_own_norm(spec)) module.norm = served.norm;
}

}  // namespace skiff::model
