// GPTQ (arXiv 2210.17323) as AutoGPTQ and GPTQModel store it: words of 32 bits along the input,
// qweight [in / 8, out] for 4 bits, qzeros [groups, out / 8], scales [groups, out], g_idx [in].
// In files of version 1 a zero point is stored less one; some are labelled 1 and hold those of
// version 2, so where zero points must all be in the middle, the data decide.
#include <algorithm>

#include "base/log.h"
#include "model/formats/packed_columns.h"
#include "model/formats/packed_words.h"
#include "model/stored_numbers.h"

namespace skiff::model {
namespace {

int64_t per_word(const StoredFormat& format) { return 32 / format.bits; }

std::vector<int64_t> words_along_inputs(const ModuleShape& m, const StoredFormat& f) {
  return {(m.in + per_word(f) - 1) / per_word(f), m.out};
}

unsigned stored_zero(const StoredModule& m, int64_t group, int64_t out) {
  const StoredFormat& f = *m.format;
  const StoredTensor& zeros = *m.of(Role::kZero);
  return packed(zeros, group * zeros.entry->shape[1] + out / per_word(f), out % per_word(f),
                f.bits);
}

int middle(const StoredFormat& f) { return 1 << (f.bits - 1); }

// Checks that the zero points are all the middle of the range or, as version 1 stores them, all one
// less.
void check_middle(const StoredModule& m) {
  const unsigned first = stored_zero(m, 0, 0), mid = static_cast<unsigned>(middle(*m.format));
  for (int64_t g = 0; g < m.of(Role::kZero)->entry->shape[0]; ++g)
    for (int64_t n = 0; n < m.shape.out; ++n)
      if (const unsigned z = stored_zero(m, g, n); z != first || (z != mid && z + 1 != mid))
        fail_load(
            "tensor \"{}\": the zero point of group {}, output {} is stored as {}; with \"sym\" "
            "true "
            "all must be {} or all {}: set \"sym\" to false if the weights are not symmetric",
            escaped(m.of(Role::kZero)->entry->name), g, n, z, mid - 1, mid);
}

// Writers disagree whether the largest zero point of version 1 wraps around to zero.
void check_wrapping(const StoredModule& m) {
  const unsigned most = (1u << m.format->bits) - 1;
  for (int64_t g = 0; g < m.of(Role::kZero)->entry->shape[0]; ++g)
    for (int64_t n = 0; n < m.shape.out; ++n)
      if (stored_zero(m, g, n) == most)
        fail_load(
            "tensor \"{}\": the zero point of group {}, output {} is stored as {}, which writers "
            "of "
            "version 1 use for two values; write the checkpoint as gptq_v2",
            escaped(m.of(Role::kZero)->entry->name), g, n, most);
}

void settle(StoredModule& m) {
  const StoredFormat& f = *m.format;
  if (m.shape.in % per_word(f) || m.shape.out % per_word(f))
    fail_load("tensor \"{}\": {} x {} elements of {} bits do not fill whole words",
              escaped(m.of(Role::kWeight)->entry->name), m.shape.out, m.shape.in, f.bits);
  if (f.symmetric)
    check_middle(m);
  else if (f.zero_offset)
    check_wrapping(m);
  settle_order(m, f.values.block_in);
}

// Symmetric elements lose their zero point, and 8-bit ones become signed.
std::byte element(const StoredFormat& f, unsigned stored) {
  const int offset = f.values.dtype == DType::kU4 ? 0 : middle(f);
  return static_cast<std::byte>(static_cast<int>(stored) - offset);
}

// Columns in any order.
void ordered_elements(const StoredModule& m, const Region& region, std::byte* to) {
  const StoredFormat& f = *m.format;
  const StoredTensor& words = *m.of(Role::kWeight);
  const int64_t per = per_word(f);
  for (int64_t c = 0; c < region.cols; ++c) {
    const int64_t k = m.column(region.col + c), line = k / per * m.shape.out + region.row;
    for (int64_t r = 0; r < region.rows; ++r)
      to[r * region.cols + c] = element(f, packed(words, line + r, k % per, f.bits));
  }
}

// Word by word, so that each is read once.
void elements(const StoredModule& m, const Region& region, std::byte* to) {
  if (!m.order.empty()) return ordered_elements(m, region, to);
  const StoredFormat& f = *m.format;
  const StoredTensor& words = *m.of(Role::kWeight);
  const int64_t per = per_word(f), end = region.col + region.cols;
  const unsigned mask = (1u << f.bits) - 1;
  for (int64_t first = region.col / per * per; first < end; first += per)
    for (int64_t r = 0; r < region.rows; ++r) {
      const auto word = stored<uint32_t>(words, first / per * m.shape.out + region.row + r);
      for (int64_t k = std::max(first, region.col); k < std::min(first + per, end); ++k)
        to[r * region.cols + k - region.col] = element(f, word >> ((k - first) * f.bits) & mask);
    }
}

void zeros(const StoredModule& m, const BlockRows& rows, float* to) {
  const StoredFormat& f = *m.format;
  const int offset = f.zero_offset - (f.values.dtype == DType::kU4 ? 0 : middle(f));
  const int64_t groups = m.of(Role::kZero)->entry->shape[0];
  for (int64_t n = rows.first; n < rows.first + rows.count; ++n)
    for (int64_t g = 0; g < groups; ++g)
      *to++ = static_cast<float>(static_cast<int>(stored_zero(m, g, n)) + offset);
}

constexpr Unpacking kSymmetric{.elements = elements, .scales = group_scales, .settle = settle};
constexpr Unpacking kAsymmetric{
    .elements = elements, .scales = group_scales, .zeros = zeros, .settle = settle};

StoredFormat format_of(const WordLayout& layout, bool symmetric, int zero_offset) {
  const bool bytes = layout.bits == 8;
  StoredFormat f{.name = layout.name("GPTQ"),
                 .tensors = packed_word_rules(words_along_inputs),
                 .values = {.dtype = bytes       ? DType::kI8
                                     : symmetric ? DType::kI4
                                                 : DType::kU4,
                            .block_out = 1,
                            .block_in = layout.group,
                            .scale = DType::kF16},
                 .unpacking = symmetric ? &kSymmetric : &kAsymmetric,
                 .bits = layout.bits,
                 .zero_offset = zero_offset,
                 .symmetric = symmetric};
  f.tensors.push_back({.role = Role::kOrder,
                       .suffixes = {".g_idx"},
                       .dtypes = {"I32"},
                       .shape = shape_of_inputs,
                       .optional = true});
  if (!symmetric) f.values.zero = bytes ? DType::kI8 : DType::kU8;
  return f;
}

// Returns whether the writer is GPTQModel 0.9.0 or later, whose zero points of version 1 never
// wrap.
bool careful_writer(const Fields& fields) {
  const Json& meta = fields.child("meta").json();
  const auto found = meta.find("quantizer");
  if (found == meta.end()) return false;
  const Json name = found->is_array() && !found->empty() ? found->front() : *found;
  if (!name.is_string()) return false;
  const std::string text = name.get<std::string>();
  constexpr std::string_view kWriter = "gptqmodel:";
  return text.starts_with(kWriter) && !text.starts_with("gptqmodel:0.") ? true
                                                                        : text == "gptqmodel:0.9.0";
}

}  // namespace

Quantization read_gptq(const Fields& fields) {
  const WordLayout layout(fields, {4, 8});
  const auto words = fields.get<std::string>("pack_dtype", "int32");
  if (words != "int32")
    fail_load("{}: \"pack_dtype\" is {}; only int32 is supported", fields.where(), escaped(words));
  const auto silent = fields.get<std::string>("format", "gptq");
  const auto format = fields.get<std::string>("checkpoint_format", silent);
  if (format != "gptq" && format != "gptq_v2")
    fail_load("{}: \"checkpoint_format\" {} is not supported, only gptq and gptq_v2 are",
              fields.where(), escaped(format));
  if (fields.get("is_marlin_format", false))
    fail_load(
        "{}: \"is_marlin_format\" true is not supported; use the checkpoint in GPTQ's own order",
        fields.where());
  const bool symmetric = fields.get("sym", true), old = format == "gptq";
  if (old && !symmetric && !careful_writer(fields))
    fail_load(
        "{}: \"sym\" is false and \"checkpoint_format\" gptq, whose zero points writers store in "
        "two "
        "ways; write the checkpoint as gptq_v2",
        fields.where());
  if (const auto dynamic = fields.json().find("dynamic");
      dynamic != fields.json().end() && !dynamic->is_null() && !dynamic->empty())
    for (const auto& item : dynamic->items())
      if (!item.key().starts_with("-:"))
        fail_load("{}: \"dynamic\" has {}, an override of some layers; only -: is supported",
                  fields.where(), escaped(item.key()));
  Quantization made;
  if (fields.has("dynamic"))
    for (const auto& item : fields.child("dynamic").json().items())
      made.rules.push_back(
          {NamePattern(PatternKind::kRegex, item.key().substr(2), fields.where() + ": dynamic"),
           {}});
  use_for_all_others(made, fields, format_of(layout, symmetric, old ? 1 : 0));
  return made;
}

}  // namespace skiff::model
