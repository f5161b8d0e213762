#include "comm/nccl/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace skiff::nccl {
namespace {

// Returns whether the library has the function.
template <class F>
bool find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  return function != nullptr;
}

// Returns the first function that the library lacks, or null.
const char* fill(void* from, Library& table) {
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto& function) {
    if (!find(from, name, function) && missing == nullptr) missing = name;
  };
  need("ncclGetUniqueId", table.get_unique_id);
  need("ncclCommInitRank", table.init_rank);
  need("ncclCommDestroy", table.destroy);
  need("ncclCommAbort", table.abort);
  need("ncclCommGetAsyncError", table.get_async_error);
  need("ncclAllGather", table.all_gather);
  need("ncclSend", table.send);
  need("ncclRecv", table.recv);
  need("ncclGroupStart", table.group_start);
  need("ncclGroupEnd", table.group_end);
  need("ncclGetErrorString", table.error_string);
  find(from, "ncclGetLastError", table.last_error);
  return missing;
}

}  // namespace

Result<Library> load_library(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Error{Code::kInvalid, dlerror()};
  Outcome (*get_version)(int*) = nullptr;
  Library table;
  const char* missing = fill(library, table);
  if (!find(library, "ncclGetVersion", get_version)) missing = "ncclGetVersion";
  if (missing != nullptr) return Error{Code::kInvalid, fmt::format("{} has no {}", file, missing)};
  if (get_version(&table.version) != kSuccess || table.version < kLeastVersion)
    return Error{Code::kInvalid,
                 fmt::format("{} is NCCL {}; it takes {} or later", file,
                             version_text(table.version), version_text(kLeastVersion))};
  return table;
}

// Up to 2.8 a version had a digit less.
std::string version_text(int version) {
  const int major = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / major, version % major / 100, version % 100);
}

}  // namespace skiff::nccl
