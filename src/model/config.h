// model/config.h -- the contents of the small JSON files of a model folder.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "arch/spec.h"
#include "model/pooling.h"
#include "model/quantization.h"

namespace skiff::model {

// What generation_config.json and config.json recommend; where both have a key, the former counts.
// Keys that neither has keep these defaults.
struct GenerationDefaults {
  std::vector<int32_t> eos;  // any of these ends a reply; the ids of both files
  int32_t bos = -1;
  bool do_sample = true;  // false: temperature defaults to 0
  float temperature = 1, top_p = 1, min_p = 0, repetition = 1;
  int top_k = 0;
  int max_new_tokens = 0;  // 0: no recommendation
};

struct ModelConfig {
  ModelSpec spec;
  GenerationDefaults generation;
  std::string dtype;  // as config.json names it; empty if it does not
  Quantization quantization;
  std::optional<PoolingConfig> pooling;  // none: the model generates
};

// Reads config.json (or `config_name`) and generation_config.json, or the metadata of a GGUF file
// (`dir` is the file, or a folder with it and no config.json), and no weights. Throws a
// LoadError of one line that names the file, the key and what to do.
ModelConfig read_model_config(const std::string& dir,
                              const std::string& config_name = "config.json",
                              const PoolingChoice& pooling = {});

}  // namespace skiff::model
