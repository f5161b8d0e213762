// model/quantization.h -- how a checkpoint says that its weights are quantized, as data. A method
// is one file in formats/ plus one line in the table of quantization.cc.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/name_pattern.h"
#include "model/stored_format.h"

namespace skiff::model {

// Layers whose names match have a format of `formats`, or plain values where there is none.
struct LayerRule {
  NamePattern pattern;
  std::vector<size_t> formats;  // indices of Quantization::formats, in the order of trying
};

// For a module the first rule that matches it counts. A module that no rule matches is plain, and
// one that should be quantized but has a plain weight is plain, too. The rules stay as they are
// once formats were asked for; copies share what was found then. Safe from any thread.
struct Quantization {
  std::string method;  // as the file names it; empty: nothing is quantized
  std::string where;   // file and key
  std::string about;   // the formats in a few words, for people
  std::vector<StoredFormat> formats;
  std::vector<LayerRule> rules;
  // Endings of tensors that the engine has no use for, such as scales of 4-bit activations.
  std::vector<std::string> unused;
  // Endings of tensors that have no place in the model, but no effect either if they are zeros.
  std::vector<std::string> zeros;
  // The elements, kF8E4M3 or kI8, that scales of the KV cache are for where their names do not say
  // it; and why these scales cannot be used, or nothing.
  DType kv_elements = DType::kF8E4M3;
  std::string kv_refusal;

  Quantization();
  // The formats that the weight of a linear layer may have, plain values last, unless a format is
  // alone.
  FormatList formats_of(std::string_view module) const;
  // The formats of what is not a linear layer: plain values, and for embeddings others.
  FormatList formats_of_table(std::string_view module) const;
  const StoredFormat& plain() const { return plain_; }

 private:
  struct Found;
  // Returns the rule that counts for the module, or rules.size().
  size_t rule_of(std::string_view module) const;

  StoredFormat plain_;
  std::shared_ptr<Found> found_;
};

// Reads how the checkpoint in `dir` is quantized from its config.json, or from one of the files
// that older writers put beside it. Throws a LoadError that names file and key for a method that is
// not supported, and for files that contradict each other.
Quantization read_quantization(const std::string& dir, const Fields& config);

// For the methods in formats/. Each takes the object that describes the quantization.
Quantization read_compressed_tensors(const Fields& fields);
Quantization read_gptq(const Fields& fields);
Quantization read_awq(const Fields& fields);
Quantization read_auto_round(const Fields& fields);
Quantization read_fp8(const Fields& fields);
Quantization read_fbgemm_fp8(const Fields& fields);
Quantization read_modelopt(const Fields& fields);
Quantization read_bitsandbytes(const Fields& fields);
Quantization read_fastdeploy(const Fields& fields);
// Scales lie in files of the folder `dir`.
Quantization read_paddlenlp(const Fields& fields, const std::string& dir);
// Returns whether the object, which names no method, is FastDeploy's.
bool is_fastdeploy(const Fields& fields);
// Returns whether it is PaddleNLP's.
bool is_paddlenlp(const Fields& fields);
// The types of GGUF, which each tensor names itself.
Quantization gguf_quantization(const std::string& path);

// Fails for a key that is none of `known`: it may change what the numbers mean.
void refuse_unknown_keys(const Fields& fields, std::initializer_list<std::string_view> known);
// The text with ASCII letters in lower case.
std::string lower(std::string text);
// Names of layers that stay plain, a list or null, become rules without formats.
void add_plain_layers(Quantization& quantization, const Fields& fields, std::string_view key,
                      PatternKind kind);

}  // namespace skiff::model
