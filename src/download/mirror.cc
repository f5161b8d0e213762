#include "download/mirror.h"

#include <fmt/format.h>

namespace skiff::download {
namespace {

constexpr int kMaxRedirects = 5;
constexpr size_t kMaxListing = 64u << 20;

// The files that a model's folder may have beside its weights.
constexpr const char* kCommonFiles[] = {"config.json",
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer.model",
                                        "tiktoken.model",
                                        "qwen.tiktoken",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "modules.json",
                                        "1_Pooling/config.json",
                                        "preprocessor_config.json",
                                        "quantize_config.json",
                                        "hf_quant_config.json",
                                        "model.safetensors"};
constexpr char kIndex[] = "model.safetensors.index.json";

// Hubs answer so for a model that needs authorization, and some for one that does not exist.
bool is_unauthorized(int status) { return status == 401 || status == 403; }

std::string answered(const fetch::Url& url, int status) {
  return fmt::format("{} answered {}{}", url.text(), status,
                     is_unauthorized(status)
                         ? "; check the model's name, and give --token-file if it needs "
                           "authorization"
                         : "");
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

fetch::Url Mirror::url_of(const std::string& path) const {
  fetch::Url url = config_.base;
  while (url.target.ends_with('/')) url.target.pop_back();
  url.target += path;
  return url;
}

std::string Mirror::path_of(const std::string& file) const {
  const std::string name = fetch::encoded_path(file), model = fetch::encoded_path(config_.model);
  if (config_.layout == MirrorConfig::Layout::kFolder) return fmt::format("/{}/{}", model, name);
  return fmt::format("/{}/resolve/{}/{}", model, fetch::encoded_path(config_.revision), name);
}

Result<fetch::Response> Mirror::follow(fetch::Request request, const fetch::Client::OnHead& on_head,
                                       const fetch::Client::OnBody& on_body) {
  const std::string asked = request.url.text();
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    fetch::Request now = request;
    if (!config_.token.empty() && request.url.same_server(config_.base))
      now.headers.emplace_back("Authorization", "Bearer " + config_.token);
    bool redirected = false;
    auto response = client_.exchange(
        now,
        [&](const fetch::Response& head) {
          redirected = is_redirect(head.status);
          return redirected ? ok() : on_head(head);
        },
        [&](std::string_view piece) { return redirected ? ok() : on_body(piece); });
    if (!response || !redirected) return response;
    const auto next = fetch::resolve(request.url, response->header("location"));
    if (!next) return Error{Code::kInvalid, fmt::format("{}: {}", asked, next.error().what)};
    if (request.url.secure && !(*next).secure)
      return Error{Code::kInvalid,
                   fmt::format("{} redirects from https to {}", asked, (*next).text())};
    request.url = *next;
  }
  return Error{Code::kInvalid,
               fmt::format("{} redirects more than {} times", asked, kMaxRedirects)};
}

Result<fetch::Response> Mirror::get(const std::string& file, const std::string& range,
                                    const std::string& if_range,
                                    const fetch::Client::OnHead& on_head,
                                    const fetch::Client::OnBody& on_body) {
  fetch::Request request{.method = "GET", .url = url_of(path_of(file)), .headers = {}, .body = {}};
  request.headers.emplace_back("Accept-Encoding", "identity");
  if (!range.empty()) request.headers.emplace_back("Range", range);
  if (!if_range.empty()) request.headers.emplace_back("If-Range", if_range);
  return follow(std::move(request), on_head, on_body);
}

Result<std::string> Mirror::text_at(const std::string& path) {
  std::string body;
  const fetch::Request request{.method = "GET",
                               .url = url_of(path),
                               .headers = {{"Accept-Encoding", "identity"}},
                               .body = {}};
  const auto response = follow(
      request, [](const fetch::Response&) { return ok(); },
      [&](std::string_view piece) -> Status {
        if (body.size() + piece.size() > kMaxListing)
          return Error{Code::kInvalid,
                       fmt::format("{} is larger than {} bytes", request.url.text(), kMaxListing)};
        body += piece;
        return ok();
      });
  if (!response) return response.error();
  const int status = (*response).status;
  if (status == 200) return body;
  return Error{status == 404 ? Code::kNotFound : Code::kInvalid, answered(request.url, status)};
}

Result<bool> Mirror::has(const std::string& file) {
  fetch::Request request{.method = "HEAD", .url = url_of(path_of(file)), .headers = {}, .body = {}};
  const auto response = follow(
      std::move(request), [](const fetch::Response&) { return ok(); },
      [](std::string_view) { return ok(); });
  if (!response) return response.error();
  if ((*response).status == 200) return true;
  // Object stores answer 403 for what is not there.
  if ((*response).status == 404 || (*response).status == 403) return false;
  return Error{Code::kInvalid, answered(url_of(path_of(file)), (*response).status)};
}

Result<std::vector<RemoteFile>> Mirror::probe() {
  std::vector<RemoteFile> files;
  for (const char* name : kCommonFiles) {
    const auto there = has(name);
    if (!there) return there.error();
    if (*there) files.push_back({.name = name, .size = {}, .checksum = {}});
  }
  const auto sharded = has(kIndex);
  if (!sharded) return sharded.error();
  if (*sharded) {
    const auto index = text_at(path_of(kIndex));
    if (!index) return index.error();
    auto shards = read_shard_index(*index);
    if (!shards) return shards;
    files.push_back({.name = kIndex, .size = {}, .checksum = {}});
    files.insert(files.end(), (*shards).begin(), (*shards).end());
  }
  if (files.empty())
    return Error{
        Code::kNotFound,
        fmt::format("{} has no model {} (revision {}) that it shows; give --token-file if it "
                    "needs authorization",
                    config_.base.text(), config_.model, config_.revision)};
  return files;
}

Result<std::vector<RemoteFile>> Mirror::list() {
  if (config_.layout == MirrorConfig::Layout::kFolder) {
    const auto text = text_at(path_of("file_list.txt"));
    if (!text) return text.error();
    return read_md5_list(*text);
  }
  const auto listing = text_at(fmt::format("/api/models/{}/revision/{}?blobs=true",
                                           fetch::encoded_path(config_.model),
                                           fetch::encoded_path(config_.revision)));
  if (listing) return read_hub_listing(*listing);
  if (listing.error().code == Code::kNotFound) return probe();
  return listing.error();
}

}  // namespace skiff::download
