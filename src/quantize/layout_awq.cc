// The layout of AutoAWQ's GEMM kernels: words of eight elements along the output, interleaved.
// Reader: model/formats/awq.cc.
#include "base/load_error.h"
#include "quantize/layout.h"

namespace skiff::quantize {
namespace {

// The place in its word of each of eight neighbouring outputs.
constexpr int64_t kPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

std::vector<NewTensor> tensors(const std::string& module, const Rounded& r) {
  const int64_t words_across = r.out / 8, groups = r.blocks_across();
  std::vector<uint32_t> words(static_cast<size_t>(r.in * words_across));
  for (int64_t n = 0; n < r.out; ++n)
    for (int64_t k = 0; k < r.in; ++k)
      words[static_cast<size_t>(k * words_across + n / 8)] |=
          static_cast<uint32_t>(r.codes[static_cast<size_t>(n * r.in + k)]) << (4 * kPlace[n % 8]);
  std::vector<uint32_t> zeros(static_cast<size_t>(groups * words_across));
  std::vector<float> scales(static_cast<size_t>(groups * r.out));
  for (int64_t n = 0; n < r.out; ++n)
    for (int64_t g = 0; g < groups; ++g) {
      const Step& step = r.steps[static_cast<size_t>(n * groups + g)];
      zeros[static_cast<size_t>(g * words_across + n / 8)] |= static_cast<uint32_t>(step.zero)
                                                              << (4 * kPlace[n % 8]);
      scales[static_cast<size_t>(g * r.out + n)] = step.scale;
    }
  return {{module + ".qweight", "I32", {r.in, words_across}, word_bytes(words)},
          {module + ".qzeros", "I32", {groups, words_across}, word_bytes(zeros)},
          {module + ".scales", "F16", {groups, r.out}, float_bytes(scales, DType::kF16)}};
}

Json config(const QuantizedModel& model) {
  return {{"quant_method", "awq"},
          {"bits", 4},
          {"group_size", model.format.block_in ? model.format.block_in : -1},
          {"zero_point", true},
          {"version", "gemm"},
          {"modules_to_not_convert", model.plain}};
}

void check(const std::string& module, int64_t out, int64_t in, const WeightFormat& format,
           const WeightFormat& asked) {
  if (!format.zero)
    fail_load(
        "AWQ's layout always has zero points: use --symmetric false, or --layout "
        "compressed-tensors");
  if (out % 8)
    fail_load(
        "{} has {} outputs, and AWQ's layout needs a multiple of 8: use --layout "
        "compressed-tensors, or add --ignore {}",
        module, out, module);
  if (format.block_in != asked.block_in)
    fail_load(
        "{} has {} inputs, which --group-size {} does not divide, and AWQ's layout has one "
        "group size for all layers: choose one that divides them, or --layout "
        "compressed-tensors",
        module, in, asked.block_in);
}

}  // namespace

const Layout kAwqLayout{.name = "awq",
                        .method = "awq",
                        .scale = DType::kF16,
                        .check = check,
                        .tensors = tensors,
                        .config = config};

}  // namespace skiff::quantize
