// A shared library with the functions of NCCL that are used here. It notes calls and moves nothing.
// SKIFF_FAKE_VERSION is the version that it claims; SKIFF_FAKE_SHORT leaves ncclSend out.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "comm/nccl/fake_library_testing.h"
#include "comm/nccl/library.h"

using skiff::nccl::Comm;
using skiff::nccl::Stream;
using skiff::nccl::UniqueId;

skiff::nccl::FakeNccl* fake_nccl() {
  static skiff::nccl::FakeNccl state;
  return &state;
}

namespace {

int noted(std::string call) {
  fake_nccl()->calls.push_back(std::move(call));
  return fake_nccl()->answer;
}

Comm the_comm() { return reinterpret_cast<Comm>(fake_nccl()); }

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = SKIFF_FAKE_VERSION;
  return 0;
}
int ncclGetUniqueId(UniqueId* id) {
  id->bytes.fill(std::byte{7});
  return noted("id");
}
int ncclCommInitRank(Comm* comm, int ranks, UniqueId id, int rank) {
  *comm = the_comm();
  return noted(fmt::format("init {} of {} id {}", rank, ranks, static_cast<int>(id.bytes[127])));
}
int ncclCommDestroy(Comm) { return noted("destroy"); }
int ncclCommAbort(Comm comm) { return noted(comm == the_comm() ? "abort" : "abort of another"); }
int ncclCommGetAsyncError(Comm, int* error) {
  *error = fake_nccl()->async_error;
  return 0;
}
int ncclAllGather(const void* mine, void* all, size_t count, int type, Comm, Stream) {
  ++fake_nccl()->held;
  while (fake_nccl()->holds) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return noted(fmt::format("gather {} of type {} from {} to {}", count, type, mine, all));
}
#ifndef SKIFF_FAKE_SHORT
int ncclSend(const void* from, size_t count, int type, int to, Comm, Stream) {
  return noted(fmt::format("send {} of type {} at {} to {}", count, type, from, to));
}
#endif
int ncclRecv(void* to, size_t count, int type, int from, Comm, Stream) {
  return noted(fmt::format("receive {} of type {} at {} from {}", count, type,
                           static_cast<const void*>(to), from));
}
int ncclGroupStart() { return noted("("); }
int ncclGroupEnd() { return noted(")"); }
const char* ncclGetErrorString(int outcome) {
  return outcome == 6 ? "remote process exited" : "another error";
}
const char* ncclGetLastError(Comm) { return "a cable is out"; }
}
