// download/mirror.h -- a server that has models' folders: where a file lies there, which files
// there are, and requests that follow redirects.
#pragma once
#include <string>
#include <vector>

#include "download/file_list.h"
#include "fetch/client.h"

namespace skiff::download {

struct MirrorConfig {
  enum class Layout { kHub, kFolder };
  fetch::Url base;
  Layout layout = Layout::kHub;
  std::string model;  // its name there: "org/name"; a safe name
  std::string revision = "main";
  std::string token;  // sent to the base's server alone; empty: none
};

// Used by one thread at a time.
class Mirror {
 public:
  Mirror(MirrorConfig config, fetch::Client& client)
      : config_(std::move(config)), client_(client) {}

  // The files of the model's folder. A hub without an API is asked for the files that models
  // commonly have, and for the shards that their index names.
  Result<std::vector<RemoteFile>> list();

  // GETs one file. `range` is the value of a Range header, `if_range` that of If-Range; both may be
  // empty. Redirects are followed, at most five, from https to https only. Errors with kExhausted
  // may go away; on_head sees the answer that is no redirect.
  Result<fetch::Response> get(const std::string& file, const std::string& range,
                              const std::string& if_range, const fetch::Client::OnHead& on_head,
                              const fetch::Client::OnBody& on_body);

 private:
  fetch::Url url_of(const std::string& path) const;
  std::string path_of(const std::string& file) const;
  Result<fetch::Response> follow(fetch::Request request, const fetch::Client::OnHead& on_head,
                                 const fetch::Client::OnBody& on_body);
  // The body if the status is 200; an Error with kNotFound for 404.
  Result<std::string> text_at(const std::string& path);
  Result<bool> has(const std::string& file);
  Result<std::vector<RemoteFile>> probe();

  const MirrorConfig config_;
  fetch::Client& client_;
};

}  // namespace skiff::download
