// download/part_file.h -- the part of a file that has come so far, NAME.part beside NAME. One
// process at a time holds it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "download/digest.h"

namespace skiff::download {

class PartFile {
 public:
  // Creates folders and the part, or takes up the part that is there. kExhausted: another process
  // is at it. A symbolic link is refused.
  static Result<PartFile> open(const std::string& folder, const std::string& name);
  PartFile(PartFile&& other) noexcept;
  PartFile& operator=(PartFile&&) = delete;
  ~PartFile();

  uint64_t size() const { return size_; }
  Status append(std::string_view bytes);
  Status clear();
  // Reads the whole part.
  Result<std::string> digest(Checksum::Kind kind) const;
  // Makes it durable and gives it its name.
  Status finish();
  void remove();

 private:
  PartFile(std::string path, int file, uint64_t size)
      : path_(std::move(path)), file_(file), size_(size) {}
  std::string part_path() const { return path_ + ".part"; }
  Error trouble(const char* what) const;
  std::string path_;
  int file_;
  uint64_t size_;
};

// The digest of a whole file, or why it cannot be read.
Result<std::string> digest_of_file(const std::string& path, Checksum::Kind kind);

}  // namespace skiff::download
