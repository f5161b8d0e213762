// libFuzzer target: any bytes as a step message. Reading never crashes or takes memory out of
// proportion, and what was read is written as the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "message/wire.h"

namespace {

using namespace skiff;

// Inputs without a header get one, so that the fuzzer need not guess it.
std::vector<std::byte> with_header(std::span<const std::byte> body, uint16_t kind) {
  std::vector<std::byte> out;
  if (kind == 1)
    write_plan({.page_start = {0}}, out);
  else
    write_result({}, out);
  out.resize(kWireHeader);
  const uint64_t size = body.size();
  std::memcpy(out.data() + 8, &size, sizeof size);
  out.insert(out.end(), body.begin(), body.end());
  return out;
}

void try_all(std::span<const std::byte> bytes) {
  std::vector<std::byte> again;
  if (const auto plan = read_plan(bytes)) {
    write_plan(*plan, again);
    SKIFF_CHECK(std::ranges::equal(again, bytes));
  }
  again.clear();
  if (const auto result = read_result(bytes)) {
    write_result(*result, again);
    SKIFF_CHECK(std::ranges::equal(again, bytes));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes{reinterpret_cast<const std::byte*>(data), size};
  try_all(bytes);
  if (size == 0) return 0;
  try_all(with_header(bytes.subspan(1), data[0] % 2 ? 1 : 2));
  return 0;
}
