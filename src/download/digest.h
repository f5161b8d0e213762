// download/digest.h -- checksums of files: which kind a mirror names, and computing it piece by
// piece.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace skiff::download {

struct Checksum {
  enum class Kind {
    kNone,
    kMd5,
    kSha256,
    kGitSha1,  // SHA-1 of "blob SIZE\0" and the bytes, as git names a blob
  };
  Kind kind = Kind::kNone;
  std::string hex;  // in lower case

  // Nothing unless the text has the right number of hexadecimal digits.
  static std::optional<Checksum> parse(Kind kind, std::string_view hex);
  const char* name() const;
};

// The digest of a file whose bytes come in order. Movable.
class Digest {
 public:
  // `size` is the whole file's; only kGitSha1 needs it.
  Digest(Checksum::Kind kind, uint64_t size);
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  ~Digest();
  void add(std::string_view bytes);
  // Called once, at the end. Empty for kNone.
  std::string hex();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff::download
