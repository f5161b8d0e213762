// comm/frame.h -- the head of what two processes of a group send each other.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "comm/call.h"

namespace skiff::comm {

// What follows a head. kData: numbers of a collective. kMessage: bytes that this room does not look
// into. kEnd: the reason for which the group ends. kAlive and kLeave have nothing behind them.
enum class FrameKind : uint8_t { kData, kMessage, kAlive, kEnd, kLeave };

struct FrameHead {
  FrameKind kind = FrameKind::kAlive;
  Call call;           // the collective that the numbers of kData belong to; unused by other kinds
  uint64_t bytes = 0;  // how many follow the head

  bool operator==(const FrameHead&) const = default;
};

constexpr size_t kFrameHeadBytes = 32;
constexpr uint64_t kMostData = uint64_t{1} << 38;
constexpr uint64_t kMostMessage = (uint64_t{1} << 30) + 4096;
constexpr uint64_t kMostReason = 4096;

using HeadBytes = std::array<std::byte, kFrameHeadBytes>;

// A head has one encoding, in the byte order of the machine, which the magic number shows. Requires
// what read_head() accepts.
HeadBytes write_head(const FrameHead& head);
// Reads untrusted bytes. Returns kInvalid for what write_head() does not make, and for more bytes
// than the kind may have.
Result<FrameHead> read_head(const HeadBytes& bytes);

}  // namespace skiff::comm
