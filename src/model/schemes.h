// model/schemes.h -- how linear layers of 16- and 32-bit checkpoints are quantized while they are
// loaded. A scheme is one line in the table of schemes.cc.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/spec.h"
#include "weights/format.h"
#include "weights/quant_rule.h"

namespace skiff::model {

// Kinds of linear layers, as --quantization-config names them. Routers are never quantized.
enum class LayerKind : uint8_t {
  kAttention,
  kDense,    // feed-forward blocks, shared experts that are computed apart among them
  kExperts,  // stacks, with those that are always on
  kHead,
};
constexpr size_t kNumLayerKinds = 4;
constexpr std::array<std::string_view, kNumLayerKinds> kLayerKindNames = {"attention", "dense",
                                                                          "experts", "head"};

struct Scheme {
  std::string_view name;
  std::string_view about;  // a few words for people
  WeightFormat format;
  QuantRule rule = QuantRule::kAbsMax;
  // Where block_in does not divide the inputs of a layer, this block is used if it does, and else
  // one for each output. 0: block_in is kept, and the last block is shorter.
  int narrower_block_in = 0;

  // The format of a layer with `in` inputs. None where elements of four bits would not fill the
  // last byte of a row: such a layer stays plain.
  std::optional<WeightFormat> format_for(int64_t in) const;
};

// Returns all schemes.
const std::vector<Scheme>& schemes();
// Returns nullptr if there is no scheme of that name.
const Scheme* find_scheme(std::string_view name);

// The scheme of each kind of layer; a kind without one stays plain.
class SchemeChoice {
 public:
  const Scheme* of(LayerKind kind) const { return of_[static_cast<size_t>(kind)]; }
  void set(LayerKind kind, const Scheme* scheme) { of_[static_cast<size_t>(kind)] = scheme; }
  bool any() const;
  // Returns words for messages: "wint4 for experts, wint8 for attention and dense"; empty for none.
  std::string describe() const;
  bool operator==(const SchemeChoice&) const = default;

 private:
  std::array<const Scheme*, kNumLayerKinds> of_{};  // rows of schemes()
};

// Returns what --quantization and --quantization-config ask for; either may be empty. A name counts
// for all layers but the head; on a model with experts, wint4 leaves the other layers in wint8, as
// in FastDeploy, w4a8 in a8w8, a8w8_fp8_wint4 in block_wise_fp8. The configuration is a JSON
// object from kinds of layers to names of schemes or "none"; FastDeploy's dense_quant_type
// (attention and dense) and moe_quant_type (experts) may stand for kinds. It changes what the name
// says. Throws a LoadError that names the flag, the key and the nearest name; `asked` is the option
// that `name` comes from.
SchemeChoice choose_schemes(std::string_view name, std::string_view config, const ModelSpec& spec,
                            std::string_view asked = "--quantization");

}  // namespace skiff::model
