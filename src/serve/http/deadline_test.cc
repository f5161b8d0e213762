#include "serve/http/deadline.h"

#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>

#include <vector>

namespace skiff::http {
namespace {

TEST(Deadline, OnlyTheLastOneCounts) {
  net::io_context io;
  Deadline deadline(io.get_executor());
  std::vector<int> calls;
  deadline.set(0, [&] { calls.push_back(1); });
  deadline.set(0.001, [&] { calls.push_back(2); });
  io.run();
  EXPECT_EQ(calls, std::vector{2});
}

TEST(Deadline, ACancelledOneDoesNothing) {
  net::io_context io;
  Deadline deadline(io.get_executor());
  int calls = 0;
  deadline.set(0, [&] { ++calls; });
  deadline.cancel();
  io.run();
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace skiff::http
