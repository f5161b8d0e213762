#include "base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/load_error.h"

namespace skiff {

// O_NONBLOCK lets open() return at once for a FIFO; reading a regular file ignores it.
RegularFile::RegularFile(const std::string& path)
    : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  if (fd_ < 0) fail_load("{}: {}", path, std::strerror(errno));
  struct stat info {};
  const bool known = ::fstat(fd_, &info) == 0;
  if (known && S_ISREG(info.st_mode)) {
    size_ = static_cast<size_t>(info.st_size);
    return;
  }
  const int error = errno;
  ::close(fd_);
  if (!known) fail_load("{}: {}", path, std::strerror(error));
  fail_load("{}: not a regular file; put the file itself or a link to it there", path);
}

RegularFile::~RegularFile() { ::close(fd_); }

std::string read_regular_file(const std::string& path, size_t max_bytes) {
  const RegularFile file(path);
  if (file.size() > max_bytes)
    fail_load("{}: {} bytes, larger than the limit of {}", path, file.size(), max_bytes);
  std::string bytes(file.size(), '\0');
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t got = ::read(file.fd(), bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_load("{}: {}", path, std::strerror(errno));
    if (got == 0) fail_load("{}: became shorter while it was read", path);
    at += static_cast<size_t>(got);
  }
  return bytes;
}

}  // namespace skiff
