#include "model/formats/paddle_tiles.h"

#include "base/log.h"
#include "model/stored_numbers.h"

namespace skiff::model {
namespace {

constexpr int64_t kTile = 64;  // inputs of one output that lie together

// Bytes: inputs 0 8 1 9 ... 7 15 of each sixteen, 128 added.
struct Bytes {
  static constexpr int64_t kTogether = 2;  // outputs whose tiles follow each other
  static std::byte element(const StoredTensor& tensor, int64_t tile, int64_t k) {
    const int64_t in = k % 16, place = in < 8 ? 2 * in : 2 * in - 15;
    const auto code = stored<uint8_t>(tensor, tile * kTile + k / 16 * 16 + place);
    return static_cast<std::byte>(code - 128);
  }
};

// Halves of bytes, the low one first: inputs 0 8 16 24 1 9 17 25 2 10 ... 31 of each 32, 8 added.
struct Nibbles {
  static constexpr int64_t kTogether = 4;
  static std::byte element(const StoredTensor& tensor, int64_t tile, int64_t k) {
    const int64_t in = k % 32, place = in % 8 * 4 + in / 8;
    const int64_t byte = tile * (kTile / 2) + k / 32 * 16 + place / 2;
    const int code = stored<uint8_t>(tensor, byte) >> (place % 2 * 4) & 15;
    return static_cast<std::byte>(code - 8);
  }
};

template <class Code>
void elements(const StoredModule& m, const Region& region, std::byte* to) {
  const StoredTensor& tensor = *m.of(Role::kWeight);
  const int64_t across = m.shape.in / kTile;
  for (int64_t row = region.row; row < region.row + region.rows; ++row)
    for (int64_t k = region.col; k < region.col + region.cols; ++k) {
      const int64_t band = row / Code::kTogether * across + k / kTile;
      *to++ = Code::element(tensor, band * Code::kTogether + row % Code::kTogether, k % kTile);
    }
}

template <class Code>
void settle(StoredModule& m) {
  if (m.shape.in % kTile || m.shape.out % Code::kTogether)
    fail_load("tensor \"{}\": {} x {} elements are not whole tiles of {} x {}",
              escaped(m.of(Role::kWeight)->entry->name), m.shape.out, m.shape.in, Code::kTogether,
              kTile);
}

std::vector<int64_t> bytes_by_output(const ModuleShape& m, const StoredFormat&) {
  return {m.out, m.in};
}
std::vector<int64_t> bytes_by_two_outputs(const ModuleShape& m, const StoredFormat&) {
  return {m.out / 2, m.in};
}

template <class Code>
constexpr Unpacking kUnpacking{
    .elements = elements<Code>, .scales = stored_scales, .settle = settle<Code>};

}  // namespace

StoredFormat paddle_tiles_8() {
  return {.name = "FastDeploy wint8 in tiles, a scale for each output",
          .tensors = {{.role = Role::kWeight,
                       .suffixes = {".quant_weight"},
                       .dtypes = {"I8"},
                       .shape = bytes_by_output},
                      {.role = Role::kScale,
                       .suffixes = {".weight_scale", ".quant_scale"},
                       .dtypes = {"F32", "BF16", "F16"},
                       .shape = shape_of_outputs},
                      bias_rule()},
          .values = {.dtype = DType::kI8, .block_out = 1, .block_in = 0, .scale = DType::kF32},
          .unpacking = &kUnpacking<Bytes>,
          .bits = 8};
}

StoredFormat paddle_tiles_4() {
  StoredFormat f = paddle_tiles_8();
  f.name = "FastDeploy wint4 in tiles, a scale for each output";
  f.tensors[0].shape = bytes_by_two_outputs;
  f.values.dtype = DType::kI4;
  f.unpacking = &kUnpacking<Nibbles>;
  f.bits = 4;
  return f;
}

}  // namespace skiff::model
