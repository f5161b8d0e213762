// serve/service/protocol_config.h -- the part of the server's configuration that protocols read.
#pragma once
#include <string>
#include <vector>

#include "serve/service/request_policy.h"
#include "serve/service/sampling_defaults.h"

namespace skiff::service {

struct ProtocolConfig {
  std::vector<std::string> model_names;  // the first is the name in replies; not empty
  std::string model_path;                // "root" in /v1/models
  SamplingDefaults defaults;
  int max_concurrency = 512;           // generation requests at a time; more are answered 429
  double stream_idle_seconds = 15;     // silence before a keep-alive comment in a stream
  bool refuse_unknown_fields = false;  // 400 for a field that the API does not have
  RequestPolicy policy;
  // The fields that hold the reasoning in replies of OpenAI's API; the older name and the newer.
  bool reasoning_content = true, reasoning = false;
};

}  // namespace skiff::service
