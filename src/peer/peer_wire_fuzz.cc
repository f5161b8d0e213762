// libFuzzer target: any bytes as messages between instances, and as the fields of one with a right
// sum. Reading never crashes or takes memory out of proportion, and what was read is written as the
// same bytes.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "peer/wire.h"

namespace skiff::peer {
namespace {

void read_all(std::string_view in) {
  for (;;) {
    const std::string_view before = in;
    const auto message = take(in, kMaxGreeting);
    if (!message || !*message) return;
    std::string again;
    write(**message, again);
    SKIFF_CHECK(before.starts_with(again) && again.size() == before.size() - in.size());
  }
}

}  // namespace
}  // namespace skiff::peer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff::peer;
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  read_all(in);
  if (in.empty()) return 0;
  std::string framed;
  write_frame(data[0], in.substr(1), framed);
  read_all(framed);
  return 0;
}
