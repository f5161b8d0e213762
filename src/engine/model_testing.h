// engine/model_testing.h -- for tests: small models to run schedules on.
#pragma once
#include <skiff_test_paths.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/kv_cache.h"
#include "model/loader.h"

namespace skiff::engine {

inline constexpr const char* kSmallLlama = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "vocab_size": 97,
  "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 256, "torch_dtype": "float32"})";

// A folder with only a config.json, for LoadFormat::kDummy; removed by the destructor.
class DummyFolder {
 public:
  explicit DummyFolder(const std::string& name, const std::string& config = kSmallLlama)
      : path_((std::filesystem::temp_directory_path() /
               ("skiff_" + std::to_string(getpid()) + "_" + name))
                  .string()) {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ + "/config.json") << config;
  }
  ~DummyFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The small checkpoints of the project: those of the golden tests, and the demo model if it exists.
inline std::vector<std::string> small_models() {
  const std::string root = SKIFF_SOURCE_DIR;
  std::vector<std::string> found;
  for (const char* name : {"/tests/golden/llama3_rope", "/tests/golden/mistral",
                           "/tests/golden/qwen3", "/tests/golden/ernie45_moe",
                           "/tests/golden/mixtral", "/tests/golden/deepseek_v3", "/models/demo"}) {
    const std::string dir = root + name;
    const bool whole = std::filesystem::exists(dir + "/config.json") &&
                       std::filesystem::exists(dir + "/model.safetensors");
    if (whole) found.push_back(dir);
  }
  return found;
}

}  // namespace skiff::engine
