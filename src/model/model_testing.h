// model/model_testing.h -- for tests: a folder with a small config.json and, on demand, random
// weights in Llama's names.
#pragma once
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "model/loader.h"
#include "weights/safetensors_writer_testing.h"

namespace skiff::testing {

class TestModel {
 public:
  // The default sizes with these keys changed.
  explicit TestModel(const std::string& arch, const Json& changes = Json::object()) {
    static std::atomic<int> count{0};
    dir_ = std::filesystem::temp_directory_path() /
           fmt::format("skiff_model_{}_{}", ::getpid(), count++);
    config_ = {{"architectures", {arch}},  {"hidden_size", 16},
               {"intermediate_size", 24},  {"num_hidden_layers", 2},
               {"num_attention_heads", 4}, {"num_key_value_heads", 2},
               {"vocab_size", 40},         {"max_position_embeddings", 128}};
    if (!changes.empty()) config_.update(changes);
    write("config.json", config_.dump());
  }
  ~TestModel() { std::filesystem::remove_all(dir_); }
  TestModel(const TestModel&) = delete;

  void write(const std::string& file, const std::string& bytes) const {
    write_file(dir_ / file, bytes);
  }
  model::ModelConfig config() const { return model::read_model_config(dir_.string()); }
  std::string dir() const { return dir_.string(); }

  // Llama's tensors for the default sizes, f32.
  static std::vector<FileTensor> llama_tensors() {
    std::vector<FileTensor> tensors;
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 0.3f);
    const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
      int64_t n = 1;
      for (int64_t d : shape) n *= d;
      std::vector<float> values;
      for (int64_t i = 0; i < n; ++i) values.push_back(normal(random));
      tensors.push_back({name, "F32", std::move(shape), f32_bytes(values)});
    };
    add("model.embed_tokens.weight", {40, 16});
    add("model.norm.weight", {16});
    add("lm_head.weight", {40, 16});
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
      for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"})
        add(layer + norm, {16});
      for (const char* mlp : {"mlp.gate_proj.weight", "mlp.up_proj.weight"})
        add(layer + mlp, {24, 16});
      for (const char* kv : {"self_attn.k_proj.weight", "self_attn.v_proj.weight"})
        add(layer + kv, {8, 16});
      for (const char* qo : {"self_attn.q_proj.weight", "self_attn.o_proj.weight"})
        add(layer + qo, {16, 16});
      add(layer + "mlp.down_proj.weight", {16, 24});
    }
    return tensors;
  }

 private:
  std::filesystem::path dir_;
  Json config_;
};

}  // namespace skiff::testing
