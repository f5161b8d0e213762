#include "engine/plan_sender.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <stdexcept>

#include "engine/device_nodes.h"

namespace skiff::engine {
namespace {

class AnyStep final : public Runner {
 public:
  void launch(const StepPlan& /*plan*/) override {}
  StepResult wait(uint64_t step) override { return {.step = step}; }
};

std::array<int, 2> connected() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  return ends;
}

// Two nodes that are connected.
struct Pair {
  const std::array<int, 2> ends = connected();
  comm::Nodes first{{.node = 0, .nodes = 2}, {{ends[0], "node 1"}}};
  comm::Nodes second{{.node = 1, .nodes = 2}, {{ends[1], "node 0"}}};
};

// Devices leave a collective of a group that has ended with results that have no meaning.
TEST(PlanSender, NoResultOfAGroupThatHasEnded) {
  Pair pair;
  PlanSender sender(std::make_unique<AnyStep>(), pair.first);
  EXPECT_EQ(sender.wait(3).step, 3u);
  pair.first.abort("rank 1: gone");
  try {
    sender.wait(4);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 1: gone");
  }
}

TEST(DeviceNodes, BytesOfTheFirstNodeReachTheOthers) {
  Pair pair;
  const std::vector<std::byte> bytes = {std::byte{3}, std::byte{0}, std::byte{250}};
  EXPECT_EQ(bytes_of_first(pair.first, /*first=*/true, bytes), bytes);
  EXPECT_EQ(bytes_of_first(pair.second, /*first=*/false, {}), bytes);
  pair.first.abort("rank 0: gone");
  EXPECT_THROW(bytes_of_first(pair.second, /*first=*/false, {}), comm::GroupEnded);
}

}  // namespace
}  // namespace skiff::engine
