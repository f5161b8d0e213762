// model/loader.h -- from a model folder to weights ready to run. Everything here throws
// LoadError with one line that names the file, tensor or key and the way out.
#pragma once
#include <string>
#include <vector>

#include "base/progress.h"
#include "model/decoder.h"
#include "weights/format.h"

namespace skiff {

// generation_config.json, falling back to config.json. Values absent there keep the default.
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
};

// config.json (or `config_name`) and generation_config.json alone: cheap.
ModelConfig read_model_config(const std::string& dir,
                              const std::string& config_name = "config.json");

enum class LoadFormat {
  kAuto,   // safetensors of the folder
  kDummy,  // random weights of the right shapes, never zeros, from config.json alone
};

struct LoadOptions {
  Precision precision;  // weights are kept in `weights` or, outside of linear layers, in `act`
  LoadFormat format = LoadFormat::kAuto;
  uint64_t dummy_seed = 0;
  Progress progress;                     // bytes; may be empty
  int threads = 0;                       // that read; 0: one per core, at most 8
  size_t chunk_bytes = size_t{8} << 20;  // that each reads at a time
};

struct LoadedModel {
  ModelSpec spec;
  ModelWeights weights;
  std::vector<Buffer> buffers;  // own the weights' bytes
  size_t bytes = 0;             // of all buffers
};

// Every tensor of the checkpoint is consumed and every slot filled, or LoadError names those
// that are not.
LoadedModel load_model(const std::string& dir, const ModelConfig& config,
                       const LoadOptions& options, Ops& ops);

}  // namespace skiff
