// peer/shared_memory.h -- memory that other processes of this machine may be given to read.
#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"
#include "peer/stream.h"

namespace skiff::peer {

// A piece of the address space, given back at the end.
class Mapping {
 public:
  // `protection` and `flags` are those of mmap(). Nothing if the system refuses.
  static std::unique_ptr<Mapping> of(int file, size_t bytes, int protection, int flags);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit Mapping(std::span<std::byte> bytes) : bytes_(bytes) {}
  const std::span<std::byte> bytes_;
};

// Memory that becomes resident as it is written to. It is a file without a name where it is to be
// shared: only who is handed file() can read it, nobody can write to it or make it smaller, and it
// lives for as long as somebody has it mapped.
class ShareableMemory {
 public:
  // Shared as asked, unless the system refuses; file() tells.
  ShareableMemory(size_t bytes, bool shared);
  std::span<std::byte> bytes() const { return mapping_->bytes(); }
  int file() const { return file_.get(); }  // -1: the memory is this process's alone

 private:
  Fd file_;
  std::unique_ptr<Mapping> mapping_;
};

// Maps the whole file of another process's ShareableMemory. Refuses what that process could take
// away while it is read, which would end this one, and what has less than `least` bytes.
Result<std::shared_ptr<const Mapping>> map_shared(const Fd& file, size_t least);

}  // namespace skiff::peer
