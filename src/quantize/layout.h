// quantize/layout.h -- how rounded weights are written to a checkpoint: each layout is a file
// layout_NAME.cc and a line in the table of layout.cc.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/spec.h"
#include "base/json.h"
#include "quantize/grid.h"

namespace skiff::quantize {

// A tensor as a safetensors file has it.
struct NewTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;
};

// These are what the configuration file of a quantized model says about its weights.
struct ModuleFormat {
  std::string name;
  WeightFormat format;
};
// What tables of scales say of one rounded weight and of one layer's cache: scales of outputs, and
// largest magnitudes.
struct ModuleScales {
  std::string name;
  std::vector<float> outputs;
  float largest_input = 0;
};
struct CacheLargest {
  std::string attention;            // the module
  std::vector<float> keys, values;  // for each KV head
  int sharers = 1;                  // query heads that share one
};
struct QuantizedModel {
  std::vector<ModuleFormat> modules;  // those that are rounded
  std::vector<ModuleFormat> kept;     // those that stay quantized as they were
  std::vector<std::string> plain;     // linear layers that stay as they are, the head among them
  WeightFormat format;                // what was asked for
  std::optional<DType> kv;            // static scales of the cache: kI8 or kF8E4M3
  double damping = 0;                 // GPTQ's; 0: another method
  std::string version;                // this program's version
  // Only for layouts with tables, by the names that the layout has.
  std::vector<ModuleScales> scales;
  std::vector<CacheLargest> cache;
};

struct TextFile {
  std::string name, text;
};

struct Layout {
  std::string_view name;
  std::string_view method;  // as "quant_method" has it
  DType scale = DType::kBF16;
  // Throws a LoadError that names the module where the layout has no place for such a weight.
  void (*check)(const std::string& module, int64_t out, int64_t in, const WeightFormat& format,
                const WeightFormat& asked) = nullptr;
  std::vector<NewTensor> (*tensors)(const std::string& module, const Rounded& rounded) = nullptr;
  Json (*config)(const QuantizedModel& model) = nullptr;

  // What it has a place for: everything, weights of 4 bits alone, or integers of 8 bits in all
  // layers, whose activations have one static scale.
  enum Holds : uint8_t { kAll, kFourBits, kStaticInts } holds = kFourBits;
  // These three are for layouts of other programs than torch's: refuses a model that these do not
  // have, gives a tensor or a module its name there, and writes what lies beside the tensors, whose
  // matrices are [in, out] but for the embedding.
  void (*check_model)(const ModelSpec& spec) = nullptr;
  std::string (*rename)(std::string_view name, const ModelSpec& spec) = nullptr;
  std::vector<TextFile> (*tables)(const QuantizedModel& model) = nullptr;

  std::string name_of(std::string_view name_in_torch, const ModelSpec& spec) const {
    return rename ? rename(name_in_torch, spec) : std::string(name_in_torch);
  }
};

std::span<const Layout> layouts();
// nullptr if there is none of that name.
const Layout* find_layout(std::string_view name);

extern const Layout kCompressedTensorsLayout, kGptqLayout, kAwqLayout, kPaddleNlpLayout;

// For the layouts: float32 values as bytes of a tensor of that dtype (F32, F16 or BF16).
std::vector<std::byte> float_bytes(const std::vector<float>& values, DType dtype);
std::string_view safetensors_name(DType dtype);
// Words of 32 bits as bytes.
std::vector<std::byte> word_bytes(const std::vector<uint32_t>& words);
// The matrix of a tensor [a, b] as one [b, a].
NewTensor transposed(NewTensor tensor);
// A regular expression that matches exactly this text at the beginning.
std::string exact_pattern(std::string_view text);

}  // namespace skiff::quantize
