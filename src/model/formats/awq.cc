// AWQ (arXiv 2306.00978) as AutoAWQ stores it for its GEMM kernels: words of eight 4-bit elements
// along the output, qweight [in, out / 8], qzeros [groups, out / 8], scales [groups, out]. The
// outputs of a word are interleaved.
#include "base/log.h"
#include "model/quantization.h"
#include "model/stored_numbers.h"

namespace skiff::model {
namespace {

// The place in its word of each of eight neighbouring outputs.
constexpr int64_t kPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

std::vector<int64_t> words_along_outputs(const ModuleShape& m, const StoredFormat&) {
  return {m.in, (m.out + 7) / 8};
}
std::vector<int64_t> zeros_of_groups(const ModuleShape& m, const StoredFormat& f) {
  return {blocks_in(m.in, f.values.block_in), (m.out + 7) / 8};
}
std::vector<int64_t> scales_of_groups(const ModuleShape& m, const StoredFormat& f) {
  return {blocks_in(m.in, f.values.block_in), m.out};
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

void elements(const StoredModule& m, const Region& region, std::byte* to) {
  const StoredTensor& words = *m.of(Role::kWeight);
  for (int64_t c = 0; c < region.cols; ++c)
    for (int64_t r = 0; r < region.rows; ++r)
      to[r * region.cols + c] =
          static_cast<std::byte>(element(words, region.col + c, region.row + r));
}

void scales(const StoredModule& m, const BlockRows& rows, float* to) {
  const StoredTensor& tensor = *m.of(Role::kScale);
  const int64_t groups = tensor.entry->shape[0];
  for (int64_t n = rows.first; n < rows.first + rows.count; ++n)
    for (int64_t g = 0; g < groups; ++g) *to++ = stored_float(tensor, g * m.shape.out + n);
}

void zeros(const StoredModule& m, const BlockRows& rows, float* to) {
  const StoredTensor& tensor = *m.of(Role::kZero);
  const int64_t groups = tensor.entry->shape[0];
  for (int64_t n = rows.first; n < rows.first + rows.count; ++n)
    for (int64_t g = 0; g < groups; ++g) *to++ = static_cast<float>(element(tensor, g, n));
}

constexpr Unpacking kUnpacking{
    .elements = elements, .scales = scales, .zeros = zeros, .settle = settle};

StoredFormat format_of(int group) {
  return {
      .name = fmt::format("AWQ, 4 bits, {}", group ? fmt::format("groups of {}", group) : "rows"),
      .tensors = {{.role = Role::kWeight,
                   .suffixes = {".qweight"},
                   .dtypes = {"I32"},
                   .shape = words_along_outputs},
                  {.role = Role::kZero,
                   .suffixes = {".qzeros"},
                   .dtypes = {"I32"},
                   .shape = zeros_of_groups},
                  {.role = Role::kScale,
                   .suffixes = {".scales"},
                   .dtypes = {"F16", "BF16", "F32"},
                   .shape = scales_of_groups},
                  bias_rule()},
      .values = {.dtype = DType::kU4,
                 .block_out = 1,
                 .block_in = group,
                 .scale = DType::kF16,
                 .zero = DType::kU8},
      .unpacking = &kUnpacking,
      .bits = 4};
}

}  // namespace

Quantization read_awq(const Fields& fields) {
  const int bits = fields.need<int>(fields.has("bits") ? "bits" : "w_bit");
  if (bits != 4) fail_load("{}: \"bits\" is {}; only 4 is supported", fields.where(), bits);
  const int group = fields.need<int>(fields.has("group_size") ? "group_size" : "q_group_size");
  if (group != -1 && (group < 1 || group > 1 << 18))
    fail_load("{}: \"group_size\" is {}; it must be -1 or positive", fields.where(), group);
  std::string version = fields.get<std::string>("version", "gemm");
  for (char& c : version)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (version != "gemm")
    fail_load(
        "{}: \"version\" {} is not supported, only gemm is: convert the checkpoint with AutoAWQ",
        fields.where(), escaped(version));
  if (!fields.get("zero_point", true))
    fail_load("{}: \"zero_point\" false is not supported", fields.where());
  const auto backend = fields.get<std::string>("backend", "autoawq");
  if (backend != "autoawq")
    fail_load("{}: \"backend\" {} is not supported, only autoawq is", fields.where(),
              escaped(backend));
  Quantization made;
  add_plain_layers(made, fields, "modules_to_not_convert", PatternKind::kSubstring);
  made.formats = {format_of(group == -1 ? 0 : group)};
  made.rules.push_back({NamePattern(PatternKind::kAll, "", fields.where()), {0}});
  made.about = made.formats[0].name;
  return made;
}

}  // namespace skiff::model
