#include "peer/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "base/huge_pages.h"

// Headers of older systems lack this one of Linux 5.1.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace skiff::peer {
namespace {

Error trouble(const char* what) {
  return {Code::kUnsupported, fmt::format("{}: {}", what, std::strerror(errno))};
}

Fd new_file(size_t bytes) {
  Fd file(memfd_create("skiff-blocks", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.open() && ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return Fd();
  return file;
}

}  // namespace

std::unique_ptr<Mapping> Mapping::of(int file, size_t bytes, int protection, int flags) {
  void* data = mmap(nullptr, bytes, protection, flags, file, 0);
  if (data == MAP_FAILED) return nullptr;
  return std::unique_ptr<Mapping>(new Mapping({static_cast<std::byte*>(data), bytes}));
}

Mapping::~Mapping() { munmap(bytes_.data(), bytes_.size()); }

ShareableMemory::ShareableMemory(size_t bytes, bool shared) {
  constexpr int kWritten = PROT_READ | PROT_WRITE;
  if (shared) file_ = new_file(bytes);
  if (file_.open()) mapping_ = Mapping::of(file_.get(), bytes, kWritten, MAP_SHARED);
  // This mapping stays writable; later ones do not get it.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (!mapping_ || fcntl(file_.get(), F_ADD_SEALS, kSeals) != 0) {
    file_ = Fd();
    mapping_ = Mapping::of(-1, bytes, kWritten, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  }
  if (!mapping_) throw std::bad_alloc();
  ask_for_huge_pages(mapping_->bytes());
}

Result<std::shared_ptr<const Mapping>> map_shared(const Fd& file, size_t least) {
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0) return trouble("it is no memory");
  if ((seals & F_SEAL_SHRINK) == 0)
    return Error{Code::kUnsupported, "it could be taken away while it is read"};
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) return trouble("its size");
  const auto bytes = static_cast<size_t>(facts.st_size);
  if (bytes < least)
    return Error{Code::kUnsupported, fmt::format("it has {} bytes, not {}", bytes, least)};
  std::shared_ptr<const Mapping> mapping = Mapping::of(file.get(), bytes, PROT_READ, MAP_SHARED);
  if (!mapping) return trouble("it cannot be mapped");
  return mapping;
}

}  // namespace skiff::peer
