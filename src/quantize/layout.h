// quantize/layout.h -- how rounded weights are written to a checkpoint: each layout is a file
// layout_NAME.cc and a line in the table of layout.cc.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
struct QuantizedModel {
  std::vector<ModuleFormat> modules;  // those that are rounded
  std::vector<std::string> plain;     // linear layers that stay as they are, the head among them
  WeightFormat format;                // what was asked for
  std::optional<DType> kv;            // static scales of the cache: kI8 or kF8E4M3
  double damping = 0;                 // GPTQ's; 0: another method
  std::string version;                // this program's version
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
};

std::span<const Layout> layouts();
// nullptr if there is none of that name.
const Layout* find_layout(std::string_view name);

extern const Layout kCompressedTensorsLayout, kGptqLayout, kAwqLayout;

// For the layouts: float32 values as bytes of a tensor of that dtype (F32, F16 or BF16).
std::vector<std::byte> float_bytes(const std::vector<float>& values, DType dtype);
std::string_view safetensors_name(DType dtype);
// Words of 32 bits as bytes.
std::vector<std::byte> word_bytes(const std::vector<uint32_t>& words);
// A regular expression that matches exactly this text at the beginning.
std::string exact_pattern(std::string_view text);

}  // namespace skiff::quantize
