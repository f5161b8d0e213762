// libFuzzer target: any bytes as heads of frames between the nodes of a group. What was read is
// written as the same bytes, and announces no more bytes than its kind may have.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "comm/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff::comm;
  HeadBytes bytes{};
  // Inputs that are shorter than a head get the magic number, so that the fuzzer need not guess.
  const HeadBytes plain = write_head({});
  const bool given = size >= kFrameHeadBytes;
  if (!given) std::memcpy(bytes.data(), plain.data(), 4);
  const size_t at = given ? 0 : 4;
  std::memcpy(bytes.data() + at, data, std::min(size, kFrameHeadBytes - at));
  const auto head = read_head(bytes);
  if (!head) return 0;
  SKIFF_CHECK(head->bytes <= kMostData);
  SKIFF_CHECK(write_head(*head) == bytes);
  return 0;
}
