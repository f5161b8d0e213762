// weights/mapped_file.h -- a file's bytes, read-only, paged in as they are touched.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace skiff {

// Move-only; unmapped on destruction. A file that shrinks while it is mapped kills the process
// (SIGBUS): checkpoints are replaced by rename, not rewritten in place.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // throws LoadError naming path and reason
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Lets the pages of these bytes leave the process, because they will not be read again soon.
  void release(std::span<const std::byte> part) const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace skiff
