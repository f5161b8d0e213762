#include "comm/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skiff::comm {
namespace {

using testing::HasSubstr;

TEST(Frame, AHeadIsReadAsItWasWritten) {
  const Call call{.kind = Collective::kGather, .dtype = DType::kBF16, .rows = 3, .cols = 5};
  for (const FrameHead& head :
       {FrameHead{.kind = FrameKind::kData, .call = call, .bytes = 30},
        FrameHead{.kind = FrameKind::kMessage, .bytes = kMostMessage},
        FrameHead{.kind = FrameKind::kEnd, .bytes = kMostReason},
        FrameHead{.kind = FrameKind::kAlive}, FrameHead{.kind = FrameKind::kLeave}})
    EXPECT_EQ(*read_head(write_head(head)), head);
}

std::string refusal(size_t at, int value, FrameHead head = {.kind = FrameKind::kMessage}) {
  HeadBytes bytes = write_head(head);
  bytes[at] = static_cast<std::byte>(value);
  const auto read = read_head(bytes);
  return read ? "" : read.error().what;
}

TEST(Frame, OtherBytesAreRefused) {
  EXPECT_THAT(refusal(0, 0), HasSubstr("it begins with other bytes"));
  EXPECT_THAT(refusal(4, 5), HasSubstr("its kind is not known"));
  EXPECT_THAT(refusal(7, 1), HasSubstr("its kind is not known"));
  EXPECT_THAT(refusal(5, 9), HasSubstr("its collective is not known"));
  EXPECT_THAT(refusal(6, 200), HasSubstr("its collective is not known"));
  EXPECT_THAT(refusal(15, 0x80, {.kind = FrameKind::kData}), HasSubstr("its shape is negative"));
  EXPECT_THAT(refusal(8, 1), HasSubstr("a shape without being a collective"));
  EXPECT_THAT(refusal(30, 1), HasSubstr("too many bytes"));
  EXPECT_THAT(refusal(24, 1, {.kind = FrameKind::kAlive}), HasSubstr("too many bytes"));
}

}  // namespace
}  // namespace skiff::comm
