#include "serve/http/api_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <algorithm>
#include <fstream>

#include "serve/http/api_error.h"
#include "serve/http/cache_part.h"
#include "serve/http/head.h"

namespace skiff::http {
namespace {

constexpr size_t kMaxKey = 1024;

// Empty if the request brings no key.
std::string_view bearer(const HttpRequest& request) {
  static constexpr std::string_view kScheme = "bearer";
  const std::string_view value = request.header("authorization");
  const size_t space = value.find(' ');
  if (space == std::string_view::npos || lower_case(value.substr(0, space)) != kScheme) return {};
  return trimmed(value.substr(space));
}

HttpResponse unauthorized(bool brought) {
  HttpResponse response = error_response(api_error(
      401, brought ? "the API key of this request is not one that opens this server"
                   : "this server wants an API key, as \"Authorization: Bearer KEY\" or as "
                     "\"x-api-key: KEY\"; the request has neither"));
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace

void ApiKeys::set(const std::vector<std::string>& keys) {
  std::vector<Digest> digests;
  for (const std::string& key : keys)
    SHA256(reinterpret_cast<const uint8_t*>(key.data()), key.size(), digests.emplace_back().data());
  std::sort(digests.begin(), digests.end());
  digests.erase(std::unique(digests.begin(), digests.end()), digests.end());
  std::lock_guard lock(mutex_);
  digests_ = std::move(digests);
}

bool ApiKeys::any() const {
  std::lock_guard lock(mutex_);
  return !digests_.empty();
}

bool ApiKeys::knows(std::string_view key) const {
  Digest digest;
  SHA256(reinterpret_cast<const uint8_t*>(key.data()), key.size(), digest.data());
  bool found = false;
  std::lock_guard lock(mutex_);
  for (const Digest& known : digests_)
    found |= CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0;
  return found;
}

std::optional<HttpResponse> ApiKeys::refuse(const HttpRequest& request) const {
  if (!any()) return std::nullopt;
  bool brought = false;
  for (const std::string_view key : {bearer(request), request.header("x-api-key")}) {
    if (key.empty()) continue;
    if (knows(key)) return std::nullopt;
    brought = true;
  }
  return unauthorized(brought);
}

std::string ApiKeys::cache_salt(const HttpRequest& request) const {
  for (const auto& [name, value] : request.headers)
    if (name == kCachePart) return value;
  static constexpr std::string_view kPurpose = "skiff prefix cache";
  {
    std::lock_guard lock(mutex_);
    if (digests_.size() < 2) return {};
  }
  for (const std::string_view key : {bearer(request), request.header("x-api-key")}) {
    if (key.empty() || !knows(key)) continue;
    Digest salt;
    HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
         reinterpret_cast<const uint8_t*>(kPurpose.data()), kPurpose.size(), salt.data(), nullptr);
    std::string hex;
    for (const uint8_t byte : salt) hex += fmt::format("{:02x}", byte);
    return hex;
  }
  return {};
}

Status check_api_key(std::string_view key) {
  const auto printable = [](char c) { return c > 0x20 && c < 0x7f; };
  if (key.empty() || key.size() > kMaxKey || !std::all_of(key.begin(), key.end(), printable))
    return Error{
        Code::kInvalid,
        fmt::format("a key is 1 to {} printable ASCII characters without a space", kMaxKey),
        "api-key"};
  return ok();
}

Result<std::vector<std::string>> read_key_file(const std::string& path, const std::string& flag) {
  const auto refusal = [&](const std::string& why) {
    return Error{Code::kInvalid, fmt::format("--{} {}: {}", flag, path, why), flag};
  };
  std::ifstream in(path, std::ios::binary);
  if (!in) return refusal("the file cannot be read");
  std::vector<std::string> keys;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    const std::string_view key = trimmed(line);
    if (key.empty() || key.front() == '#') continue;
    if (const Status good = check_api_key(key); !good)
      return refusal(fmt::format("line {}: {}", number, good.error().what));
    keys.emplace_back(key);
  }
  if (in.bad()) return refusal("the file cannot be read to its end");
  if (keys.empty()) return refusal("the file has no key; put one on each line");
  return keys;
}

}  // namespace skiff::http
