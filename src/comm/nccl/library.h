// comm/nccl/library.h -- NCCL, as far as it is used here: from the shared library that the machine
// has, loaded when the first group needs it, so that everything else works where it is missing.
//
// What stands here is NCCL's binary interface, which has been the same since 2.9. It is written
// down again so that a build needs none of its headers; library_test.cc compares it with nccl.h
// where there is one.
#pragma once
#include <array>
#include <cstddef>
#include <string>

#include "base/result.h"

struct CUstream_st;  // a cudaStream_t points to it
struct ncclComm;     // an ncclComm_t points to it

namespace skiff::nccl {

using Stream = CUstream_st*;
using Comm = ncclComm*;
using Outcome = int;  // ncclResult_t
constexpr Outcome kSuccess = 0, kInProgress = 7;
constexpr int kBytes = 0;  // the ncclDataType_t of what is only moved

// By which the ranks of a group find each other.
struct UniqueId {
  std::array<std::byte, 128> bytes{};
};

// Earlier ones record no collectives (2.9), or are another interface.
constexpr int kLeastVersion = 20900;

struct Library {
  int version = 0;  // 22809 is 2.28.9
  Outcome (*get_unique_id)(UniqueId* id) = nullptr;
  Outcome (*init_rank)(Comm* comm, int ranks, UniqueId id, int rank) = nullptr;
  Outcome (*destroy)(Comm comm) = nullptr;
  Outcome (*abort)(Comm comm) = nullptr;
  Outcome (*get_async_error)(Comm comm, Outcome* error) = nullptr;
  Outcome (*all_gather)(const void* mine, void* all, size_t count, int type, Comm comm,
                        Stream stream) = nullptr;
  Outcome (*send)(const void* from, size_t count, int type, int to, Comm comm,
                  Stream stream) = nullptr;
  Outcome (*recv)(void* to, size_t count, int type, int from, Comm comm, Stream stream) = nullptr;
  Outcome (*group_start)() = nullptr;
  Outcome (*group_end)() = nullptr;
  const char* (*error_string)(Outcome outcome) = nullptr;
  const char* (*last_error)(Comm comm) = nullptr;  // null before 2.13
};

// Loads it; it is never unloaded, because it has threads. The error says what is missing.
Result<Library> load_library(const char* file = "libnccl.so.2");

// Returns "2.28.9".
std::string version_text(int version);

}  // namespace skiff::nccl
