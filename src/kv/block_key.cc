#include "kv/block_key.h"

#include <openssl/sha.h>

#include <bit>
#include <vector>

namespace skiff::kv {

static_assert(std::endian::native == std::endian::little, "keys are of little-endian tokens");

BlockKey sha256(std::span<const std::byte> bytes) {
  BlockKey key;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), key.data());
  return key;
}

namespace {

BlockKey key_of(std::string_view head, const BlockKey& parent, std::span<const Token> tokens,
                std::string_view extra) {
  std::vector<std::byte> text;
  text.reserve(head.size() + parent.size() + tokens.size_bytes() + extra.size());
  const auto append = [&](auto bytes) { text.insert(text.end(), bytes.begin(), bytes.end()); };
  append(std::as_bytes(std::span(head)));
  append(std::as_bytes(std::span(parent)));
  append(std::as_bytes(tokens));
  append(std::as_bytes(std::span(extra)));
  return sha256(text);
}

}  // namespace

// The first byte separates roots, children, children with an extra, and partial blocks; the length
// says where the fingerprint ends. All full blocks of one fingerprint have the same number of
// tokens, so the remaining bytes are the extra. A partial block says its number.
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
  return key_of(extra.empty() ? "c" : "x", parent, tokens, extra);
}

BlockKey partial_key(const BlockKey& parent, std::span<const Token> tokens,
                     std::string_view extra) {
  const auto count = static_cast<uint32_t>(tokens.size());
  std::string head(1 + sizeof count, 'p');
  std::memcpy(head.data() + 1, &count, sizeof count);
  return key_of(head, parent, tokens, extra);
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
