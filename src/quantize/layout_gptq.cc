// GPTQ's own layout: words of 32 bits along the input. Symmetric files are of version 1, where a
// zero point is stored less one; those with zero points of version 2, because writers of version 1
// disagree about them. Reader: model/formats/gptq.cc.
#include "base/load_error.h"
#include "quantize/layout.h"

namespace skiff::quantize {
namespace {

std::vector<NewTensor> tensors(const std::string& module, const Rounded& r) {
  const bool symmetric = !r.format.zero;
  const int element = bits(r.format.dtype);
  const int64_t per = 32 / element, groups = r.blocks_across();
  const unsigned mask = (1u << element) - 1, middle = 1u << (element - 1);
  std::vector<uint32_t> words(static_cast<size_t>(r.in / per * r.out));
  for (int64_t n = 0; n < r.out; ++n)
    for (int64_t k = 0; k < r.in; ++k) {
      const unsigned code = r.codes[static_cast<size_t>(n * r.in + k)];
      words[static_cast<size_t>(k / per * r.out + n)] |= (symmetric ? (code + middle) & mask : code)
                                                         << (k % per * element);
    }
  std::vector<uint32_t> zeros(static_cast<size_t>(groups * r.out / per));
  std::vector<float> scales(static_cast<size_t>(groups * r.out));
  for (int64_t n = 0; n < r.out; ++n)
    for (int64_t g = 0; g < groups; ++g) {
      const Step& step = r.steps[static_cast<size_t>(n * groups + g)];
      const unsigned zero = symmetric ? middle - 1 : static_cast<unsigned>(step.zero);
      zeros[static_cast<size_t>(g * r.out / per + n / per)] |= zero << (n % per * element);
      scales[static_cast<size_t>(g * r.out + n)] = step.scale;
    }
  std::vector<uint32_t> group_of;
  const int64_t wide = r.format.block_in ? r.format.block_in : r.in;
  for (int64_t k = 0; k < r.in; ++k) group_of.push_back(static_cast<uint32_t>(k / wide));
  return {{module + ".qweight", "I32", {r.in / per, r.out}, word_bytes(words)},
          {module + ".qzeros", "I32", {groups, r.out / per}, word_bytes(zeros)},
          {module + ".scales", "F16", {groups, r.out}, float_bytes(scales, DType::kF16)},
          {module + ".g_idx", "I32", {r.in}, word_bytes(group_of)}};
}

Json config(const QuantizedModel& model) {
  Json plain = Json::object();
  for (const std::string& name : model.plain)
    if (name != "lm_head") plain["-:" + exact_pattern(name)] = Json::object();
  Json out = {{"quant_method", "gptq"},
              {"bits", bits(model.format.dtype)},
              {"group_size", model.format.block_in ? model.format.block_in : -1},
              {"desc_act", false},
              {"static_groups", true},
              {"sym", !model.format.zero},
              {"true_sequential", true},
              {"lm_head", false},
              {"damp_percent", model.damping},
              {"checkpoint_format", model.format.zero ? "gptq_v2" : "gptq"},
              {"pack_dtype", "int32"},
              {"meta", {{"quantizer", {"skiff:" + model.version}}}}};
  if (!plain.empty()) out["dynamic"] = plain;
  return out;
}

void check(const std::string& module, int64_t out, int64_t in, const WeightFormat& format,
           const WeightFormat& asked) {
  const int per = 32 / bits(format.dtype);
  if (in % per || out % per)
    fail_load(
        "{} is {} x {}, and GPTQ's layout needs multiples of {}: use --layout "
        "compressed-tensors, or add --ignore {}",
        module, out, in, per, module);
  if (format.block_in != asked.block_in)
    fail_load(
        "{} has {} inputs, which --group-size {} does not divide, and GPTQ's layout has one "
        "group size for all layers: choose one that divides them, or --layout "
        "compressed-tensors",
        module, in, asked.block_in);
}

}  // namespace

const Layout kGptqLayout{.name = "gptq",
                         .method = "gptq",
                         .scale = DType::kF16,
                         .check = check,
                         .tensors = tensors,
                         .config = config};

}  // namespace skiff::quantize
