#include "download/static_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

namespace skiff::download {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kInt4 = "--quantization wint4", kInt8 = "--quantization wint8";
constexpr std::string_view kMtp = R"(--speculative-config '{"method": "mtp"}')";
constexpr std::string_view kInt4Mtp =
    R"(--quantization wint4 --speculative-config '{"method": "mtp"}')";
constexpr std::string_view kInt8Mtp =
    R"(--quantization wint8 --speculative-config '{"method": "mtp"}')";

// The rows of llm/server/docs/static_models.md of PaddleNLP (its commit 46d6fee) that have a name.
// clang-format off
constexpr StaticModel kModels[] = {
    {"deepseek-ai/DeepSeek-R1/weight_only_int4", "deepseek-ai/DeepSeek-R1", kInt4},
    {"deepseek-ai/DeepSeek-R1-MTP/weight_only_int4", "deepseek-ai/DeepSeek-R1", kInt4Mtp},
    {"deepseek-ai/DeepSeek-R1-2nodes/weight_only_int8", "deepseek-ai/DeepSeek-R1", kInt8},
    {"deepseek-ai/DeepSeek-R1-MTP-2nodes/weight_only_int8", "deepseek-ai/DeepSeek-R1", kInt8Mtp},
    {"deepseek-ai/DeepSeek-R1-2nodes/a8w8_fp8", "deepseek-ai/DeepSeek-R1"},
    {"deepseek-ai/DeepSeek-R1-MTP-2nodes/a8w8_fp8", "deepseek-ai/DeepSeek-R1", kMtp},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B/weight_only_int8", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", kInt8},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B-Block-Attn/weight_only_int8", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", kInt8},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B-Block-Attn/float16", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B/weight_only_int8", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", kInt8},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B-Block-Attn/weight_only_int8", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", kInt8},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B-Block-Attn/float16", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-14B/weight_only_int8", "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", kInt8},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-14B-Block-Attn/weight_only_int8", "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", kInt8},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-14B-Block-Attn/float16", "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B"},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B/weight_only_int8", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", kInt8},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B-Block-Attn/weight_only_int8", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", kInt8},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B-Block-Attn/float16", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"},
    {"deepseek-ai/DeepSeek-R1-Distill-Llama-8B/weight_only_int8", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", kInt8},
    {"deepseek-ai/DeepSeek-R1-Distill-Llama-8B-Block-Attn/weight_only_int8", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", kInt8},
    {"deepseek-ai/DeepSeek-R1-Distill-Llama-8B-Block-Attn/float16", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"},
    {"deepseek-ai/DeepSeek-R1-Distill-Llama-70B/weight_only_int8", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B", kInt8},
    {"Qwen/QwQ-32B-Append-Attn/weight_only_int8", "Qwen/QwQ-32B", kInt8},
    {"meta-llama/Meta-Llama-3-8B-Instruct-Append-Attn/bfloat16", "meta-llama/Meta-Llama-3-8B-Instruct"},
    {"meta-llama/Meta-Llama-3-8B-Instruct-Block-Attn/float16", "meta-llama/Meta-Llama-3-8B-Instruct"},
    {"Qwen/Qwen1.5-0.5B-Block-Attn/bfloat16", "Qwen/Qwen1.5-0.5B"},
    {"Qwen/Qwen1.5-0.5B-Block-Attn/float16", "Qwen/Qwen1.5-0.5B"},
    {"Qwen/Qwen2-1.5B-Instruct-Append-Attn/bfloat16", "Qwen/Qwen2-1.5B-Instruct"},
    {"Qwen/Qwen2-1.5B-Instruct-Block-Attn/float16", "Qwen/Qwen2-1.5B-Instruct"},
};
// clang-format on

// The folders of a static model on a mirror.
constexpr std::string_view kParts[] = {"/model", "/node1", "/node2", "/mtp"};

// Returns the entries in the order of their names. A folder that may not be listed seems empty.
std::vector<fs::directory_entry> listed(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    entries.push_back(*it);
  std::ranges::sort(entries, {}, [](const fs::directory_entry& entry) { return entry.path(); });
  return entries;
}

std::string first_graph(const fs::path& folder) {
  for (const fs::directory_entry& entry : listed(folder)) {
    const fs::path kind = entry.path().extension();
    if (kind == ".pdmodel" || kind == ".pdiparams") return entry.path().filename().string();
  }
  return {};
}

}  // namespace

std::span<const StaticModel> static_models() { return kModels; }

const StaticModel* find_static_model(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  for (const std::string_view part : kParts)
    if (path.ends_with(part)) {
      path.remove_suffix(part.size());
      break;
    }
  const auto* found = std::ranges::find_if(kModels, [&](const StaticModel& model) {
    if (!path.ends_with(model.name)) return false;
    const std::string_view before = path.substr(0, path.size() - model.name.size());
    return before.empty() || before.ends_with('/');
  });
  return found == std::end(kModels) ? nullptr : found;
}

std::string advice_on(const StaticModel& model) {
  return fmt::format(
      "{} is a static model of PaddleNLP, an inference graph for Paddle, which is not run here; "
      "use the checkpoint {}{}{}",
      model.name, model.checkpoint, model.flags.empty() ? "" : " with ", model.flags);
}

std::string graph_in(const std::string& folder) {
  if (std::string here = first_graph(folder); !here.empty()) return here;
  for (const fs::directory_entry& entry : listed(folder)) {
    const std::string name = entry.path().filename().string();
    std::error_code error;
    if (!name.starts_with("rank_") || !entry.is_directory(error)) continue;
    const std::string file = first_graph(entry.path());
    if (!file.empty()) return fmt::format("{}/{}", name, file);
  }
  return {};
}

std::string advice_on_graph(const std::string& folder, const std::string& file) {
  if (const StaticModel* known = find_static_model(folder)) return advice_on(*known);
  return fmt::format(
      "{}: {} is an inference graph for Paddle, which is not run here; give the folder of the "
      "checkpoint that it was exported from (config.json, a tokenizer and *.safetensors), and for "
      "a graph of weight_only_int8 or weight_only_int4 --quantization wint8 or wint4",
      folder, file);
}

}  // namespace skiff::download
