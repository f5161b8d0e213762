// The formats that are found for published chat templates, so that a change of the signs is seen.
#include <gtest/gtest.h>
#include <skiff_test_paths.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/json.h"
#include "text/answer/answer_format.h"

namespace skiff::answer {
namespace {

namespace fs = std::filesystem;

struct Row {
  std::string_view model, calls, reasoning;
};

// "none" for calls: the template shows no mark of a call (plain text, or no tools at all), or one
// of a format that is not read yet (Apertus, Command R+, Gemma 4, gpt-oss, functionary).
constexpr Row kRows[] = {
    {"Apertus-8B-Instruct", "none", "none"},
    {"Apriel-1.6-15b-Thinker-fixed", "jamba", "none"},
    {"Bielik-11B-v3.0-Instruct", "hermes", "think"},
    {"ByteDance-Seed-OSS", "seed_oss", "seed_oss"},
    {"Cohere2MoE", "cohere_command3", "cohere_command3"},
    {"CohereForAI-c4ai-command-r-plus-tool_use", "none", "none"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere_command3", "cohere_command3"},
    {"GLM-4.6", "glm45", "think"},
    {"GLM-4.7-Flash", "glm45", "think"},
    {"GLM-5.2", "glm45", "think"},
    {"GigaChat3-10B-A1.8B", "gigachat3", "none"},
    {"GigaChat3.1-10B-A1.8B", "gigachat3", "none"},
    {"HuggingFaceTB-SmolLM3-3B", "none", "think"},
    {"Kimi-K2-Instruct", "kimi_k2", "none"},
    {"Kimi-K2-Thinking", "kimi_k2", "think"},
    {"LFM2-8B-A1B", "lfm2", "none"},
    {"LFM2.5-Instruct", "none", "think"},
    {"MiMo-VL", "hermes", "none"},
    {"MiroThinker", "hermes", "think"},
    {"Mistral-Small-3.2-24B-Instruct-2506", "mistral", "none"},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3_coder", "think"},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", "none"},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", "none"},
    {"Qwen-QwQ-32B", "hermes", "think"},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes", "none"},
    {"Qwen-Qwen3-0.6B", "hermes", "think"},
    {"Qwen3-Coder", "qwen3_coder", "none"},
    {"Qwen3.5-4B", "qwen3_coder", "think"},
    {"Reka-Edge", "hermes", "think"},
    {"StepFun3.5-Flash", "qwen3_coder", "think"},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_v3", "think"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3", "think"},
    {"deepseek-ai-DeepSeek-V3.1", "deepseek_v31", "think"},
    {"deepseek-ai-DeepSeek-V3.2", "deepseek_v32", "think"},
    {"deepseek-ai-DeepSeek-V4", "deepseek_v4", "think"},
    {"fireworks-ai-llama-3-firefunction-v2", "phi4_mini_json", "none"},
    {"google-gemma-2-2b-it", "none", "none"},
    {"google-gemma-4-31B-it-interleaved", "none", "none"},
    {"google-gemma-4-31B-it", "none", "none"},
    {"ibm-granite-granite-3.3-2B-Instruct", "granite", "ernie-x1"},
    {"llama-cpp-deepseek-r1", "deepseek_v3", "think"},
    {"llama-cpp-rwkv-world", "none", "think"},
    {"meetkai-functionary-medium-v3.1", "llama3_json", "none"},
    {"meetkai-functionary-medium-v3.2", "none", "none"},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json", "none"},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama3_json", "none"},
    {"meta-llama-Llama-3.3-70B-Instruct", "llama3_json", "none"},
    {"microsoft-Phi-3.5-mini-instruct", "none", "none"},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral", "mistral"},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral", "none"},
    {"moonshotai-Kimi-K2", "kimi_k2", "none"},
    {"openai-gpt-oss-120b", "none", "none"},
    {"stepfun-ai-Step-3.5-Flash", "qwen3_coder", "think"},
    {"unsloth-Apriel-1.5", "jamba", "none"},
    {"unsloth-mistral-Devstral-Small-2507", "mistral", "none"},
    {"deepseek-r1", "deepseek_v3", "think"},
    {"ernie-4.5", "none", "none"},
    {"llama-3-8b", "none", "none"},
    {"qwen2.5", "hermes", "none"},
    {"qwen3", "hermes", "think"},
};

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The template of a model, from either of the folders of shared data.
std::string template_of(std::string_view model) {
  const fs::path data = fs::path(SKIFF_SHARED_DIR) / "data";
  const std::string name(model);
  const fs::path alone = data / "chat_templates/templates" / (name + ".jinja");
  if (fs::exists(alone)) return read_text(alone);
  const auto config =
      parse_ordered_json(read_text(data / "tokenizers" / name / "tokenizer_config.json"));
  return config ? config->at("chat_template").get<std::string>() : std::string();
}

template <class Format>
std::string_view name_of(const Format* format) {
  return format ? format->name : "none";
}

TEST(Detection, PublishedTemplates) {
  const fs::path folder = fs::path(SKIFF_SHARED_DIR) / "data/chat_templates/templates";
  if (!fs::exists(folder)) GTEST_SKIP() << "no chat templates in " SKIFF_SHARED_DIR;
  std::set<std::string, std::less<>> models;
  for (const Row& row : kRows) {
    const std::string text = template_of(row.model);
    EXPECT_NE(text, "") << row.model;
    EXPECT_EQ(name_of(detect_call_format(text)), row.calls) << row.model;
    EXPECT_EQ(name_of(detect_reasoning_format(text)), row.reasoning) << row.model;
    models.emplace(row.model);
  }
  for (const auto& entry : fs::directory_iterator(folder))
    EXPECT_TRUE(entry.path().extension() != ".jinja" ||
                models.contains(entry.path().stem().string()))
        << entry.path() << " has no row";
}

}  // namespace
}  // namespace skiff::answer
