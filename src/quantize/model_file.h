// quantize/model_file.h -- the model that is to be quantized, layer by layer: which matrices of the
// checkpoint make up which weights of the decoder.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/sources.h"
#include "quantize/matrix.h"
#include "weights/checkpoint.h"

namespace skiff::quantize {

// The dtype of weights in eight-bit floats. What is changed of such a weight becomes bfloat16.
constexpr std::string_view kFloat8 = "F8_E4M3";

// One matrix [out, in] of the checkpoint, or that of one expert of a stacked tensor.
struct Unit {
  std::string name;  // as a module, without ".weight"; experts of a stack get one each
  int64_t out = 0, in = 0;
  const StoredTensor* tensor = nullptr;
  int64_t first_row = 0;  // the first row in the tensor, seen as rows of `in` values
  bool stacked = false;
  const StoredTensor* bias = nullptr;
  const model::StoredModule* module = nullptr;  // that has `tensor`
};

// A part of a unit's matrix that goes into a weight of the decoder.
struct Piece {
  size_t unit = 0;
  int64_t row = 0, rows = 0, col = 0, cols = 0;
};

struct LinearSlot {
  model::Slot slot;
  std::vector<Piece> pieces;  // in the order of the weight's rows, seen as [experts * out, in]
};

// A weight that stays as it is, unless a factor is folded into it.
struct PlainSlot {
  model::Slot slot;
  const StoredTensor* tensor = nullptr;
  const model::StoredModule* module = nullptr;  // that has `tensor`
  // The stacks whose matrices are cut from it (Slot::heads). Where there are any, the decoder has
  // these and no place for `slot`.
  std::vector<model::Slot> stacks;

  const model::Slot* stack(std::string_view name) const;  // nullptr if there is none
};

// The weights of one layer.
struct LayerMap {
  int layer = 0;
  std::vector<Unit> units;
  std::vector<LinearSlot> linears;
  std::vector<PlainSlot> plains;  // norms, router and its bias, what heads make of latents

  const LinearSlot* linear(std::string_view name) const;  // nullptr if there is none
  const PlainSlot* plain(std::string_view name) const;
};

// Reads values of a plain tensor as float32.
std::vector<float> read_floats(const StoredTensor& tensor, int64_t first, int64_t count);
std::vector<float> read_floats(const StoredTensor& tensor);
// Reads rows of a module's matrix, plain or as eight-bit floats with their scales.
std::vector<float> read_rows(const model::StoredModule& module, int64_t first, int64_t count);

class ModelFile {
 public:
  // Throws a LoadError if the folder cannot be read, is quantized already, is a GGUF file or has
  // Paddle's layout. Eight-bit floats in blocks are taken, as DeepSeek-V3 was published: there is
  // no checkpoint of more bits.
  explicit ModelFile(const std::string& dir);

  const std::string& dir() const { return dir_; }
  const model::ModelConfig& config() const { return config_; }
  const ModelSpec& spec() const { return config_.spec; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  LayerMap layer(int index) const;
  bool quantized() const { return !config_.quantization.method.empty(); }
  // The module of a weight in eight-bit floats that no slot has. Throws a LoadError where its
  // scales are missing.
  model::StoredModule module_beside(const StoredTensor& weight) const;
  // Outside of the layers. The head is the embedding where they are tied.
  const StoredTensor& embedding() const { return *embedding_; }
  const StoredTensor& head() const { return *head_; }
  const StoredTensor& norm() const { return *norm_; }

 private:
  static void add_stack(LayerMap& map, const model::Slot& slot, const model::Source& source);
  void add_linear(LayerMap& map, const model::Slot& slot, const model::Source& source) const;

  std::string dir_;
  model::ModelConfig config_;
  std::optional<Checkpoint> checkpoint_;
  std::vector<model::Slot> slots_;
  std::vector<model::Source> sources_;
  const StoredTensor *embedding_ = nullptr, *head_ = nullptr, *norm_ = nullptr;
};

}  // namespace skiff::quantize
