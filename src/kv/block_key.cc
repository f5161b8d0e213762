#include "kv/block_key.h"

#include <openssl/sha.h>

#include <bit>
#include <vector>

namespace skiff {

static_assert(std::endian::native == std::endian::little, "keys are of little-endian tokens");

BlockKey sha256(std::span<const std::byte> bytes) {
  BlockKey key;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), key.data());
  return key;
}

// The first byte tells roots from children, the length where the fingerprint ends.
BlockKey root_key(std::string_view fingerprint, std::string_view salt) {
  const uint64_t length = fingerprint.size();
  std::vector<std::byte> text(1, std::byte{'r'});
  const auto append = [&](const void* data, size_t n) {
    const auto* from = static_cast<const std::byte*>(data);
    text.insert(text.end(), from, from + n);
  };
  append(&length, sizeof length);
  append(fingerprint.data(), fingerprint.size());
  append(salt.data(), salt.size());
  return sha256(text);
}

BlockKey child_key(const BlockKey& parent, std::span<const Token> tokens) {
  std::vector<std::byte> text(1 + parent.size() + tokens.size_bytes(), std::byte{'c'});
  std::memcpy(text.data() + 1, parent.data(), parent.size());
  std::memcpy(text.data() + 1 + parent.size(), tokens.data(), tokens.size_bytes());
  return sha256(text);
}

}  // namespace skiff
