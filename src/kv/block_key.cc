#include "kv/block_key.h"

#include <openssl/sha.h>

#include <algorithm>
#include <bit>
#include <vector>

namespace skiff::kv {

static_assert(std::endian::native == std::endian::little, "keys are of little-endian tokens");

BlockKey sha256(std::span<const std::byte> bytes) {
  BlockKey key;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), key.data());
  return key;
}

// The first byte separates roots, children, and children with an extra; the length says where the
// fingerprint ends. All blocks of one fingerprint have the same number of tokens, so the remaining
// bytes are the extra.
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

BlockKey child_key(const BlockKey& parent, std::span<const Token> tokens, std::string_view extra) {
  const size_t plain = 1 + parent.size() + tokens.size_bytes();
  std::vector<std::byte> text(plain + extra.size(), std::byte(extra.empty() ? 'c' : 'x'));
  std::memcpy(text.data() + 1, parent.data(), parent.size());
  std::memcpy(text.data() + 1 + parent.size(), tokens.data(), tokens.size_bytes());
  std::ranges::copy(std::as_bytes(std::span(extra)), text.begin() + static_cast<long>(plain));
  return sha256(text);
}

std::string extra_of(const CacheSharing& sharing, int begin, int end) {
  std::string text;
  for (const CacheExtra& extra : sharing.extras) {
    if (extra.begin >= end || extra.end <= begin) continue;
    const int64_t head[] = {extra.begin, extra.end, std::ssize(extra.identity)};
    text.append(reinterpret_cast<const char*>(head), sizeof head);
    text += extra.identity;
  }
  return text;
}

}  // namespace skiff::kv
