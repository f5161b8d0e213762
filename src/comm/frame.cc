#include "comm/frame.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"

namespace skiff::comm {
namespace {

constexpr uint32_t kMagic = 0x53464b47;

struct Wire {
  uint32_t magic = kMagic;
  uint8_t kind = 0, collective = 0, dtype = 0, unused = 0;
  int64_t rows = 0, cols = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(Wire) == kFrameHeadBytes);

uint64_t most_bytes(FrameKind kind) {
  if (kind == FrameKind::kData) return kMostData;
  if (kind == FrameKind::kMessage) return kMostMessage;
  return kind == FrameKind::kEnd ? kMostReason : 0;
}

Error invalid(const char* why) { return {Code::kInvalid, fmt::format("no frame: {}", why)}; }

}  // namespace

HeadBytes write_head(const FrameHead& head) {
  SKIFF_CHECK(head.bytes <= most_bytes(head.kind), "a frame of {} bytes", head.bytes);
  const Wire wire{.kind = static_cast<uint8_t>(head.kind),
                  .collective = static_cast<uint8_t>(head.call.kind),
                  .dtype = static_cast<uint8_t>(head.call.dtype),
                  .rows = head.call.rows,
                  .cols = head.call.cols,
                  .bytes = head.bytes};
  HeadBytes bytes;
  std::memcpy(bytes.data(), &wire, sizeof wire);
  return bytes;
}

Result<FrameHead> read_head(const HeadBytes& bytes) {
  Wire wire;
  std::memcpy(&wire, bytes.data(), sizeof wire);
  if (wire.magic != kMagic) return invalid("it begins with other bytes");
  if (wire.kind > static_cast<uint8_t>(FrameKind::kLeave) || wire.unused != 0)
    return invalid("its kind is not known");
  if (wire.collective > static_cast<uint8_t>(Collective::kLeast) ||
      wire.dtype > static_cast<uint8_t>(DType::kU4))
    return invalid("its collective is not known");
  if (wire.rows < 0 || wire.cols < 0) return invalid("its shape is negative");
  const FrameHead head{.kind = static_cast<FrameKind>(wire.kind),
                       .call = {.kind = static_cast<Collective>(wire.collective),
                                .dtype = static_cast<DType>(wire.dtype),
                                .rows = wire.rows,
                                .cols = wire.cols},
                       .bytes = wire.bytes};
  if (head.kind != FrameKind::kData && head.call != Call{})
    return invalid("it has a shape without being a collective");
  if (head.bytes > most_bytes(head.kind)) return invalid("it announces too many bytes");
  return head;
}

}  // namespace skiff::comm
