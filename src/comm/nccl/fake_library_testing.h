// comm/nccl/fake_library_testing.h -- what a shared library that stands in for NCCL has seen, and
// how it answers.
#pragma once
#include <atomic>
#include <string>
#include <vector>

namespace skiff::nccl {

struct FakeNccl {
  std::vector<std::string> calls;  // in order, with their arguments
  int answer = 0, async_error = 0;
  std::atomic<bool> holds = false;  // all-gathers do not return while it is set
  std::atomic<int> held = 0;        // those that have come
};

}  // namespace skiff::nccl

// The library's own.
extern "C" skiff::nccl::FakeNccl* fake_nccl();
