// model/quantized_testing.h -- for tests: the checkpoints under tests/quantized, and copies of them
// that can be changed.
#pragma once
#include <skiff_test_paths.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "arch/shard.h"
#include "model/loader.h"
#include "model/single.h"
#include "model/stored_forms.h"
#include "weights/safetensors_writer_testing.h"

namespace skiff::testing {

inline constexpr const char* kScaleFiles[] = {"weight_scales.json", "act_scales.json"};

inline std::string folder_of(const std::string& name) {
  return std::string(SKIFF_SOURCE_DIR) + "/tests/quantized/" + name;
}

// Returns the configuration that the engine reads: shared experts of another format than the routed
// ones are apart.
inline model::ModelConfig config_of(const std::string& model) {
  model::ModelConfig config = model::read_model_config(model);
  if (shared_experts_differ(model, config)) separate_shared_experts(config.spec);
  return config;
}

// A copy of a checkpoint of safetensors that can be spoilt.
class Mutation {
 public:
  explicit Mutation(const std::string& name)
      : dir_(std::filesystem::temp_directory_path() /
             fmt::format("skiff_quantized_{}_{}", ::getpid(), name)) {
    config_ = read_json_file(folder_of(name) + "/config.json");
    for (const char* file : kScaleFiles)
      if (std::filesystem::exists(folder_of(name) + "/" + file))
        tables_[file] = read_json_file(folder_of(name) + "/" + file);
    std::ifstream in(folder_of(name) + "/model.safetensors", std::ios::binary);
    const std::string file(std::istreambuf_iterator<char>(in), {});
    const auto header = parse_safetensors(std::as_bytes(std::span(file)));
    for (const TensorEntry& t : header->tensors)
      tensors_.push_back({t.name, t.dtype, t.shape, file.substr(t.begin, t.end - t.begin)});
  }
  ~Mutation() { std::filesystem::remove_all(dir_); }

  FileTensor& tensor(const std::string& name) {
    return *std::ranges::find(tensors_, name, &FileTensor::name);
  }
  void drop(const std::string& name) {
    std::erase_if(tensors_, [&](const auto& t) { return t.name == name; });
  }
  Json& quantization() { return config_["quantization_config"]; }
  // Scales that lie beside the tensors, by the names of their files.
  std::map<std::string, Json>& tables() { return tables_; }
  const std::map<std::string, Json>& tables() const { return tables_; }
  std::vector<FileTensor>& tensors() { return tensors_; }
  const std::vector<FileTensor>& tensors() const { return tensors_; }
  std::string refusal() const {
    try {
      const auto ops = make_reference_ops();
      load(*ops);
    } catch (const LoadError& e) {
      return e.what();
    }
    return "accepted";
  }
  // The logits of a short prompt.
  std::vector<float> logits() const {
    const auto ops = make_reference_ops();
    const model::LoadedModel model = load(*ops);
    comm::Mesh mesh = comm::make_solo_mesh();
    model::SingleSequence sequence(model, *ops, mesh, DType::kF32, 8, 8);
    const Tensor out = sequence.forward(std::vector<int32_t>{1, 5, 3, 7});
    return {out.as<float>(), out.as<float>() + out.elements()};
  }

 private:
  model::LoadedModel load(Ops& ops) const {
    std::filesystem::remove_all(dir_);
    write_file(dir_ / "config.json", config_.dump());
    for (const auto& [file, table] : tables_) write_file(dir_ / file, table.dump());
    write_file(dir_ / "model.safetensors", safetensors_bytes(tensors_));
    return load_model(dir_.string(), config_of(dir_.string()),
                      {.precision = uniform_precision(DType::kF32), .progress = {}}, ops);
  }

  std::filesystem::path dir_;
  Json config_;
  std::map<std::string, Json> tables_;
  std::vector<FileTensor> tensors_;
};

}  // namespace skiff::testing
