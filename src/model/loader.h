// model/loader.h -- loads the weights of a model folder in the form that a backend computes with.
#pragma once
#include <string>
#include <vector>

#include "base/progress.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/schemes.h"
#include "model/slot_cut.h"
#include "model/slots.h"
#include "model/weights.h"
#include "ops/ops.h"
#include "weights/format.h"

namespace skiff::model {

enum class LoadFormat {
  kAuto,   // the safetensors files of the folder
  kDummy,  // random weights of the right shapes, never zeros, from config.json alone
};

struct LoadOptions {
  Precision precision;  // weights are kept in `weights` or, outside of linear layers, in `act`
  SchemeChoice schemes = {};  // what is quantized while it is loaded
  LoadFormat format = LoadFormat::kAuto;
  uint64_t dummy_seed = 0;
  Progress progress;                     // bytes; may be empty
  int threads = 0;                       // threads that read; 0: one per core, at most 8
  size_t chunk_bytes = size_t{8} << 20;  // bytes that each thread reads at a time
  RankOf part = {};                      // the rank whose part of the weights is loaded
};

struct LoadedModel {
  ModelSpec spec;  // describes this rank's part of the model
  ModelWeights weights;
  std::vector<Buffer> buffers;  // own the weights' bytes
  size_t bytes = 0;             // bytes of all buffers
  // There is one for each layer where precision.kv asks for fixed scales; they lie in kv_memory.
  std::vector<FixedKvScales> kv_scales = {};
  Buffer kv_memory = {};
};

// Returns what becomes of each slot; `stored` is as for kept_slots(). Throws a LoadError that names
// the option `asked` where `ops` cannot multiply a weight in the format that it should be quantized
// to.
std::vector<Kept> check_formats(const std::vector<Slot>& slots, const Precision& precision,
                                const SchemeChoice& schemes, const Ops& ops,
                                std::span<const StoredForm> stored = {},
                                std::string_view asked = "--quantization");

// `config` is that of the whole model, of which options.part is loaded; its size must fit
// (arch/shard.h). Throws a LoadError of one line, which names the file or the tensors, where
// anything fails: every slot must be filled, and every tensor of the checkpoint must be used.
LoadedModel load_model(const std::string& dir, const ModelConfig& config,
                       const LoadOptions& options, Ops& ops);

}  // namespace skiff::model
