// Blocks of random bytes in the types that the gguf package 0.19.0 reads but does not write: the
// hashes are FNV-1a of what its dequantize() makes of them, as float32. Zeros have no sign there:
// the package has none for MXFP4.
#include <gtest/gtest.h>

#include "gguf/gguf.h"
#include "model/quantization.h"
#include "model/unpack.h"

namespace skiff::model {
namespace {

constexpr int64_t kRows = 3, kCols = 512;

struct Blocks {
  const char* type;
  std::vector<size_t> halves;  // where a block has a float16, which is made small and positive
  const char* hash;
};

// The bytes of a linear congruential generator, which any language can draw.
std::vector<std::byte> random_blocks(const GgufType& type, const std::vector<size_t>& halves) {
  std::vector<std::byte> bytes(static_cast<size_t>(kRows * kCols / type.elements * type.bytes));
  uint32_t state = 12345;
  for (std::byte& b : bytes) {
    state = (state * 1103515245 + 12345) & 0x7fffffff;
    b = static_cast<std::byte>(state >> 16);
  }
  const auto size = static_cast<size_t>(type.bytes);
  for (size_t at = 0; at < bytes.size(); at += size) {
    for (const size_t half : halves) bytes[at + half + 1] = std::byte{0x2c};
    if (halves.empty()) bytes[at] = std::byte{120} | (bytes[at] & std::byte{7});
  }
  return bytes;
}

std::string fnv(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte b : std::as_bytes(std::span(values)))
    hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

TEST(GgufBlocks, EqualTheReferenceBitForBit) {
  const Quantization quantization = gguf_quantization("test");
  for (const auto& [type, halves, hash] :
       {Blocks{"Q4_K", {0, 2}, "f20532aff2698ec0"}, Blocks{"Q6_K", {208}, "0e77a0905431b30f"},
        Blocks{"MXFP4", {}, "d6992b8306b3d780"}}) {
    const auto bytes = random_blocks(*find_gguf_type(type), halves);
    const TensorEntry entry{.name = type, .dtype = type, .shape = {kRows, kCols}};
    const StoredTensor tensor{.entry = &entry, .bytes = bytes};
    const auto format = std::ranges::find(quantization.formats, type, &StoredFormat::name);
    ASSERT_NE(format, quantization.formats.end());
    StoredModule module{
        .format = &*format, .tensors = {}, .shape = {.out = kRows, .in = kCols}, .order = {}};
    module.tensors[static_cast<size_t>(Role::kWeight)] = &tensor;
    std::vector<float> values(static_cast<size_t>(kRows * kCols));
    widen(module, {0, kRows, 0, kCols}, values.data());
    for (float& v : values) v += 0.0f;
    EXPECT_EQ(fnv(values), hash) << type;
  }
}

}  // namespace
}  // namespace skiff::model
