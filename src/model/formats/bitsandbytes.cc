// bitsandbytes: 4-bit codes (NF4 of arXiv 2305.14314, or its own FP4) over the flattened matrix in
// blocks of 64, which may cross rows, with a largest magnitude for each block that may be quantized
// itself; and int8 rows with a largest magnitude for each output (arXiv 2208.07339).
#include <cmath>

#include "base/log.h"
#include "model/family.h"
#include "model/formats/eight_bits.h"
#include "model/stored_numbers.h"

namespace skiff::model {
namespace {

constexpr int64_t kBlock = 64, kOuterBlock = 256;
constexpr int kMaxBlock = 1 << 18;
constexpr JsonLimits kLimits = {.max_bytes = 1u << 16, .max_depth = 4};

int64_t elements_of(const ModuleShape& m) { return m.out * m.in; }
int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

std::vector<int64_t> two_a_byte(const ModuleShape& m, const StoredFormat&) {
  return {ceil_div(elements_of(m), 2), 1};
}
std::vector<int64_t> one_a_block(const ModuleShape& m, const StoredFormat&) {
  return {ceil_div(elements_of(m), kBlock)};
}
std::vector<int64_t> one_a_block_of_blocks(const ModuleShape& m, const StoredFormat&) {
  return {ceil_div(ceil_div(elements_of(m), kBlock), kOuterBlock)};
}
std::vector<int64_t> sixteen(const ModuleShape&, const StoredFormat&) { return {16}; }
std::vector<int64_t> all_bytes(const ModuleShape&, const StoredFormat&) { return {256}; }

// The description that a weight comes with must say what its tensors are; its offset is added to
// magnitudes that are quantized.
void settle(StoredModule& m) {
  const StoredTensor& note = *m.of(Role::kNote);
  const std::string name = escaped(note.entry->name);
  const auto json =
      parse_json({reinterpret_cast<const char*>(note.bytes.data()), note.bytes.size()}, kLimits);
  if (!json) fail_load("tensor \"{}\" is no description: {}", name, json.error().what);
  const Fields state(*json, fmt::format("tensor \"{}\"", name));
  const auto shape = state.need<std::vector<int64_t>>("shape");
  if (shape != std::vector<int64_t>{m.shape.out, m.shape.in})
    fail_load("tensor \"{}\" says another shape than config.json, {} x {}", name, m.shape.out,
              m.shape.in);
  if (const int block = need_int(state, "blocksize", 1, kMaxBlock); block != kBlock)
    fail_load("tensor \"{}\": \"blocksize\" is {}, only {} is supported", name, block, kBlock);
  const bool nested = m.of(Role::kScaleOfScales) != nullptr;
  if (nested != state.has("nested_blocksize") || nested != (m.of(Role::kScaleCodes) != nullptr))
    fail_load(
        "tensor \"{}\" and the tensors nested_absmax and nested_quant_map contradict each "
        "other",
        name);
  if (nested != (m.of(Role::kScale)->entry->dtype == "U8"))
    fail_load("tensor \"{}\" is {}", escaped(m.of(Role::kScale)->entry->name),
              m.of(Role::kScale)->entry->dtype);
  if (!nested) return;
  if (const int block = need_int(state, "nested_blocksize", 1, kMaxBlock); block != kOuterBlock)
    fail_load("tensor \"{}\": \"nested_blocksize\" is {}, only {} is supported", name, block,
              kOuterBlock);
  m.numbers = {state.need<float>("nested_offset")};
}

float magnitude(const StoredModule& m, int64_t block) {
  const StoredTensor& absmax = *m.of(Role::kScale);
  float value = 0;
  if (const StoredTensor* outer = m.of(Role::kScaleOfScales)) {
    const auto code = stored<uint8_t>(absmax, block);
    const float product =
        stored<float>(*m.of(Role::kScaleCodes), code) * stored<float>(*outer, block / kOuterBlock);
    value = product + m.numbers[0];
  } else {
    value = stored<float>(absmax, block);
  }
  if (!std::isfinite(value))
    fail_load("tensor \"{}\": the magnitude of block {} is {}", escaped(absmax.entry->name), block,
              value);
  return value;
}

// The first of two codes is in the high half.
void elements(const StoredModule& m, const Region& region, std::byte* to) {
  const StoredTensor& codes = *m.of(Role::kWeight);
  float map[16];
  for (int64_t i = 0; i < 16; ++i) map[i] = stored<float>(*m.of(Role::kCodes), i);
  float scale = 0;
  int64_t block = -1;
  for (int64_t r = region.row; r < region.row + region.rows; ++r)
    for (int64_t c = region.col; c < region.col + region.cols; ++c) {
      const int64_t i = r * m.shape.in + c;
      if (i / kBlock != block) scale = magnitude(m, block = i / kBlock);
      const unsigned code = stored<uint8_t>(codes, i / 2) >> (i % 2 ? 0 : 4) & 15;
      const float value = map[code] * scale;
      std::memcpy(to, &value, sizeof value);
      to += sizeof value;
    }
}

constexpr Unpacking kFourBits{.elements = elements, .settle = settle};

StoredFormat four_bits(const std::string& type, std::string_view note) {
  return {.name = fmt::format("bitsandbytes {}, blocks of {}", type, kBlock),
          .tensors = {{.role = Role::kWeight,
                       .suffixes = {".weight"},
                       .dtypes = {"U8"},
                       .shape = two_a_byte},
                      {.role = Role::kScale,
                       .suffixes = {".weight.absmax"},
                       .dtypes = {"F32", "U8"},
                       .shape = one_a_block},
                      {.role = Role::kCodes,
                       .suffixes = {".weight.quant_map"},
                       .dtypes = {"F32"},
                       .shape = sixteen},
                      {.role = Role::kScaleOfScales,
                       .suffixes = {".weight.nested_absmax"},
                       .dtypes = {"F32"},
                       .shape = one_a_block_of_blocks,
                       .optional = true},
                      {.role = Role::kScaleCodes,
                       .suffixes = {".weight.nested_quant_map"},
                       .dtypes = {"F32"},
                       .shape = all_bytes,
                       .optional = true},
                      {.role = Role::kNote, .suffixes = {note}, .dtypes = {"U8"}, .shape = nullptr},
                      bias_rule()},
          .values = {.dtype = DType::kF32},
          .unpacking = &kFourBits,
          .bits = 4};
}

// A scale is a largest magnitude divided by 127.
void row_scales(const StoredModule& m, const BlockRows& rows, float* to) {
  for (int64_t r = rows.first; r < rows.first + rows.count; ++r)
    *to++ = stored<float>(*m.of(Role::kScale), r) / 127.0f;
}

void refuse_tiles(StoredModule& m) {
  const StoredTensor* layout = m.of(Role::kNote);
  if (layout && stored<uint8_t>(*layout, 0) != 0)
    fail_load("tensor \"{}\" says that the weight is stored in tiles; save it in rows",
              escaped(layout->entry->name));
}

StoredFormat int8_rows() {
  StoredFormat f = eight_bit_format({.name = "bitsandbytes int8, a scale for each output",
                                     .dtype = DType::kI8,
                                     .scale_suffixes = {".SCB"},
                                     .flat = true});
  static const Unpacking kRows{
      .elements = f.unpacking->elements, .scales = row_scales, .settle = refuse_tiles};
  f.unpacking = &kRows;
  f.tensors[1].dtypes = {"F32"};
  f.tensors.push_back({.role = Role::kNote,
                       .suffixes = {".weight_format"},
                       .dtypes = {"U8"},
                       .shape = shape_of_one,
                       .optional = true});
  return f;
}

}  // namespace

Quantization read_bitsandbytes(const Fields& fields) {
  const bool four = fields.get("load_in_4bit", false), eight = fields.get("load_in_8bit", false);
  if (four == eight)
    fail_load("{}: one of \"load_in_4bit\" and \"load_in_8bit\" must be true", fields.where());
  const auto type = fields.get<std::string>("bnb_4bit_quant_type", "fp4");
  if (four && type != "nf4" && type != "fp4")
    fail_load("{}: \"bnb_4bit_quant_type\" is {}; nf4 and fp4 are supported", fields.where(),
              escaped(type));
  if (four)
    if (const auto storage = fields.get<std::string>("bnb_4bit_quant_storage", "uint8");
        storage != "uint8")
      fail_load("{}: \"bnb_4bit_quant_storage\" is {}; only uint8 is supported", fields.where(),
                escaped(storage));
  Quantization made;
  add_plain_layers(made, fields, "llm_int8_skip_modules", PatternKind::kComponents);
  made.formats = {!four           ? int8_rows()
                  : type == "nf4" ? four_bits(type, ".weight.quant_state.bitsandbytes__nf4")
                                  : four_bits(type, ".weight.quant_state.bitsandbytes__fp4")};
  made.rules.push_back({NamePattern(PatternKind::kAll, "", fields.where()), {0}});
  made.about = made.formats[0].name;
  return made;
}

}  // namespace skiff::model
