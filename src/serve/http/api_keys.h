// serve/http/api_keys.h -- the keys that open a server, kept as digests.
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

namespace skiff {

// Thread-safe.
class ApiKeys {
 public:
  explicit ApiKeys(const std::vector<std::string>& keys) { set(keys); }

  // Replaces all of them. None at all: every request may pass.
  void set(const std::vector<std::string>& keys);
  bool any() const;
  // Nothing if the request has one of the keys, as `Authorization: Bearer KEY` or as `x-api-key:
  // KEY`, or if there are no keys; else the 401. The time it takes tells nothing about the keys:
  // SHA-256 digests are compared, whole, with every one of them.
  std::optional<HttpResponse> refuse(const HttpRequest& request) const;
  // Names the part of the prefix cache that belongs to the key of a request, if there are several
  // keys; else empty. Derived from the key, so it is the same after a restart, and does not reveal
  // it.
  std::string cache_salt(const HttpRequest& request) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  bool knows(std::string_view key) const;
  mutable std::mutex mutex_;
  std::vector<Digest> digests_;  // guarded by mutex_
};

// One key a line; spaces around it, empty lines and lines that begin with '#' are left out. An
// error names the file and the line, never a key: unreadable, no key at all, or bytes that no
// header can carry.
Result<std::vector<std::string>> read_key_file(const std::string& path);
// ok if a header can carry the key: 1 to 1024 printable ASCII characters without a space.
Status check_api_key(std::string_view key);

}  // namespace skiff
