#include "download/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace skiff::download {
namespace {

size_t digits_of(Checksum::Kind kind) {
  switch (kind) {
    case Checksum::Kind::kNone:
      return 0;
    case Checksum::Kind::kMd5:
      return 32;
    case Checksum::Kind::kSha256:
      return 64;
    case Checksum::Kind::kGitSha1:
      return 40;
  }
  return 0;
}

const EVP_MD* method_of(Checksum::Kind kind) {
  if (kind == Checksum::Kind::kMd5) return EVP_md5();
  return kind == Checksum::Kind::kSha256 ? EVP_sha256() : EVP_sha1();
}

}  // namespace

std::optional<Checksum> Checksum::parse(Kind kind, std::string_view hex) {
  Checksum sum{kind, {}};
  if (hex.size() != digits_of(kind)) return std::nullopt;
  for (const char c : hex) {
    const char low = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
    if (!((low >= '0' && low <= '9') || (low >= 'a' && low <= 'f'))) return std::nullopt;
    sum.hex += low;
  }
  return sum;
}

const char* Checksum::name() const {
  switch (kind) {
    case Kind::kNone:
      return "none";
    case Kind::kMd5:
      return "MD5";
    case Kind::kSha256:
      return "SHA-256";
    case Kind::kGitSha1:
      return "git SHA-1";
  }
  return "none";
}

struct Digest::Impl {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context;
};

Digest::Digest(Checksum::Kind kind, uint64_t size) : impl_(std::make_unique<Impl>()) {
  if (kind == Checksum::Kind::kNone) return;
  impl_->context.reset(EVP_MD_CTX_new());
  SKIFF_CHECK(EVP_DigestInit_ex(impl_->context.get(), method_of(kind), nullptr) == 1,
              "OpenSSL does not offer this digest");
  if (kind != Checksum::Kind::kGitSha1) return;
  const std::string head = fmt::format("blob {}", size);
  add({head.c_str(), head.size() + 1});
}

Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;
Digest::~Digest() = default;

void Digest::add(std::string_view bytes) {
  if (impl_->context) EVP_DigestUpdate(impl_->context.get(), bytes.data(), bytes.size());
}

std::string Digest::hex() {
  if (!impl_->context) return {};
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes;
  unsigned size = 0;
  EVP_DigestFinal_ex(impl_->context.get(), bytes.data(), &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

}  // namespace skiff::download
