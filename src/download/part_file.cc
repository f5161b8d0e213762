#include "download/part_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

namespace skiff::download {
namespace {

namespace fs = std::filesystem;

Error trouble_with(const std::string& path, const char* what) {
  return {Code::kInternal, fmt::format("{}: {}: {}", path, what, std::strerror(errno))};
}

Result<std::string> digest_of(int file, const std::string& path, Checksum::Kind kind) {
  struct stat found {};
  if (fstat(file, &found) != 0) return trouble_with(path, "cannot be examined");
  Digest digest(kind, static_cast<uint64_t>(found.st_size));
  std::vector<char> buffer(1 << 20);
  for (off_t at = 0;;) {
    const ssize_t count = pread(file, buffer.data(), buffer.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return trouble_with(path, "cannot be read");
    if (count == 0) return digest.hex();
    digest.add({buffer.data(), static_cast<size_t>(count)});
    at += count;
  }
}

}  // namespace

Result<PartFile> PartFile::open(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name, part = path + ".part";
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return Error{Code::kInternal, fmt::format("{}: {}", path, error.message())};
  constexpr int kMode = 0644;
  const int file = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode);
  if (file < 0) return trouble_with(part, "cannot be written");
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    close(file);
    return Error{Code::kExhausted, part + ": another download writes it"};
  }
  struct stat held {
  }, named{};
  // Whoever held it before may have given it its name meanwhile.
  const bool same = fstat(file, &held) == 0 && stat(part.c_str(), &named) == 0 &&
                    held.st_ino == named.st_ino && held.st_dev == named.st_dev;
  if (!same || !S_ISREG(held.st_mode)) {
    close(file);
    return Error{Code::kExhausted, part + ": another download writes it"};
  }
  return PartFile(path, file, static_cast<uint64_t>(held.st_size));
}

PartFile::PartFile(PartFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), size_(other.size_) {}

PartFile::~PartFile() {
  if (file_ >= 0) close(file_);
}

Error PartFile::trouble(const char* what) const { return trouble_with(part_path(), what); }

Status PartFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return trouble("cannot be written");
    size_ += static_cast<uint64_t>(count);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return ok();
}

Status PartFile::clear() {
  if (ftruncate(file_, 0) != 0) return trouble("cannot be emptied");
  size_ = 0;
  return ok();
}

Result<std::string> PartFile::digest(Checksum::Kind kind) const {
  return digest_of(file_, part_path(), kind);
}

Status PartFile::finish() {
  if (fsync(file_) != 0) return trouble("cannot be saved");
  if (std::rename(part_path().c_str(), path_.c_str()) != 0) return trouble("cannot be renamed");
  return ok();
}

void PartFile::remove() { unlink(part_path().c_str()); }

Result<std::string> digest_of_file(const std::string& path, Checksum::Kind kind) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return trouble_with(path, "cannot be read");
  auto digest = digest_of(file, path, kind);
  close(file);
  return digest;
}

}  // namespace skiff::download
