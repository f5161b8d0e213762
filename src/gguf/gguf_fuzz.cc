// libFuzzer target: any bytes are either refused or describe only bytes that are there.
#include <cstdint>
#include <span>

#include "base/check.h"
#include "gguf/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto header = skiff::parse_gguf(std::as_bytes(std::span(data, size)));
  if (!header) return 0;
  for (const skiff::GgufTensor& t : header->tensors) {
    SKIFF_CHECK(t.begin <= t.end && t.end <= size, "[{}, {}) of {}", t.begin, t.end, size);
    const skiff::GgufType& type = *skiff::find_gguf_type(t.type);
    uint64_t elements = 1;
    for (const int64_t n : t.shape) elements *= static_cast<uint64_t>(n);
    const auto blocks = elements / static_cast<uint64_t>(type.elements);
    SKIFF_CHECK_EQ(t.end - t.begin, blocks * static_cast<uint64_t>(type.bytes));
  }
  return 0;
}
