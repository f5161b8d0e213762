// serve/http/api_keys.h -- the API keys of a server, kept as digests.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "serve/http/server.h"

namespace skiff::http {

// Thread-safe.
class ApiKeys {
 public:
  explicit ApiKeys(const std::vector<std::string>& keys) { set(keys); }

  // Replaces all keys. Without keys every request passes.
  void set(const std::vector<std::string>& keys);
  bool any() const;
  // Nothing if the request has one of the keys, as `Authorization: Bearer KEY` or as `x-api-key:
  // KEY`, or if there are no keys; else the 401. Its time reveals nothing about the keys: whole
  // SHA-256 digests are compared with every one of them.
  std::optional<HttpResponse> refuse(const HttpRequest& request) const;
  // Names the part of the prefix cache that belongs to the key of a request, if there are several
  // keys; else empty. It is derived from the key by HMAC, so it is the same after a restart and
  // does not reveal the key.
  std::string cache_salt(const HttpRequest& request) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  bool knows(std::string_view key) const;
  mutable std::mutex mutex_;
  std::vector<Digest> digests_;  // guarded by mutex_
};

// Reads one key from each line; spaces around it, empty lines and lines that begin with '#' are
// ignored. An error names the flag, the file and the line, never a key: unreadable, no key at all,
// or bytes that no header can carry.
Result<std::vector<std::string>> read_key_file(const std::string& path,
                                               const std::string& flag = "api-key-file");
// ok if a header can carry the key: 1 to 1024 printable ASCII characters without a space.
Status check_api_key(std::string_view key);

}  // namespace skiff::http
