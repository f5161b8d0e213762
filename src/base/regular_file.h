// base/regular_file.h -- opens and reads files that somebody else put into a model's folder. Only a
// regular file is opened: a FIFO would make the reader wait for a writer that never comes, and a
// device may never end.
#pragma once
#include <cstddef>
#include <string>

namespace skiff {

// An open regular file. The constructor never blocks; it throws a LoadError that names the path and
// what is wrong.
class RegularFile {
 public:
  explicit RegularFile(const std::string& path);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  int fd() const { return fd_; }
  size_t size() const { return size_; }  // bytes, when it was opened

 private:
  int fd_ = -1;
  size_t size_ = 0;
};

// Returns the whole file. Throws a LoadError that names the path if it is not a regular file, not
// readable, or larger than `max_bytes`.
std::string read_regular_file(const std::string& path, size_t max_bytes);

}  // namespace skiff
