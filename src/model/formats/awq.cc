// AWQ (arXiv 2306.00978) as AutoAWQ stores it for its GEMM kernels: words of eight 4-bit elements
// along the output, qweight [in, out / 8], qzeros [groups, out / 8], scales [groups, out]. The
// outputs of a word are interleaved.
#include <algorithm>

#include "base/log.h"
#include "model/formats/packed_words.h"
#include "model/stored_numbers.h"

namespace skiff::model {
namespace {

// The place in its word of each of eight neighbouring outputs.
constexpr int64_t kPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

std::vector<int64_t> words_along_outputs(const ModuleShape& m, const StoredFormat&) {
  return {m.in, (m.out + 7) / 8};
}

unsigned element(const StoredTensor& words, int64_t line, int64_t out) {
  return packed(words, line * words.entry->shape[1] + out / 8, kPlace[out % 8], 4);
}

void settle(StoredModule& m) {
  const int group = m.format->values.block_in;
  if (m.shape.out % 8 || (group && m.shape.in % group))
    fail_load("tensor \"{}\": {} x {} elements are not whole words and groups of {}",
              escaped(m.of(Role::kWeight)->entry->name), m.shape.out, m.shape.in, group);
}

// Word by word, so that each is read once.
void elements(const StoredModule& m, const Region& region, std::byte* to) {
  const StoredTensor& words = *m.of(Role::kWeight);
  const int64_t pitch = words.entry->shape[1], end = region.row + region.rows;
  for (int64_t c = 0; c < region.cols; ++c)
    for (int64_t first = region.row / 8 * 8; first < end; first += 8) {
      const auto word = stored<uint32_t>(words, (region.col + c) * pitch + first / 8);
      for (int64_t row = std::max(first, region.row); row < std::min(first + 8, end); ++row)
        to[(row - region.row) * region.cols + c] =
            static_cast<std::byte>(word >> (kPlace[row % 8] * 4) & 15);
    }
}

void zeros(const StoredModule& m, const BlockRows& rows, float* to) {
  const StoredTensor& tensor = *m.of(Role::kZero);
  const int64_t groups = tensor.entry->shape[0];
  for (int64_t n = rows.first; n < rows.first + rows.count; ++n)
    for (int64_t g = 0; g < groups; ++g) *to++ = static_cast<float>(element(tensor, g, n));
}

constexpr Unpacking kUnpacking{
    .elements = elements, .scales = group_scales, .zeros = zeros, .settle = settle};

StoredFormat format_of(const WordLayout& layout) {
  return {.name = layout.name("AWQ"),
          .tensors = packed_word_rules(words_along_outputs),
          .values = {.dtype = DType::kU4,
                     .block_out = 1,
                     .block_in = layout.group,
                     .scale = DType::kF16,
                     .zero = DType::kU8},
          .unpacking = &kUnpacking,
          .bits = layout.bits};
}

// AutoAWQ names the layout "version", transformers 5 "format". Other backends than llm-awq, whose
// layout is another one, are names of kernels that read gemm.
void check_layout(const Fields& fields) {
  for (const std::string key : {"version", "format", "checkpoint_format"}) {
    if (!fields.has(key)) continue;
    const auto layout = fields.get<std::string>(key, "");
    if (lower(layout) != "gemm")
      fail_load("{}: \"{}\" {} is not supported, only gemm is: convert the checkpoint with AutoAWQ",
                fields.where(), key, escaped(layout, 60));
    break;
  }
  const auto backend = fields.get<std::string>("backend", "");
  if (lower(backend) == "llm-awq")
    fail_load("{}: \"backend\" {} is not supported: convert the checkpoint with AutoAWQ",
              fields.where(), escaped(backend, 60));
}

}  // namespace

Quantization read_awq(const Fields& fields) {
  const WordLayout layout(fields, {4});
  check_layout(fields);
  if (!fields.get("zero_point", true))
    fail_load("{}: \"zero_point\" false is not supported", fields.where());
  Quantization made;
  add_plain_layers(made, fields, "modules_to_not_convert", PatternKind::kSubstring);
  use_for_all_others(made, fields, format_of(layout));
  return made;
}

}  // namespace skiff::model
