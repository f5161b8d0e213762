// apps/chat/settings.h -- the settings that /set may change. The names, ranges and messages are
// those of the flags, so that the two cannot drift apart.
#pragma once
#include <map>
#include <string>

#include "apps/args.h"
#include "base/result.h"
#include "model/loader.h"
#include "serve/service/service.h"

namespace skiff::apps {

class ChatSettings {
 public:
  // Each setting starts as the given flag, else the model's recommendation, else the flag's
  // default. Throws UsageError for a recommendation out of the flag's range.
  ChatSettings(const Args& args, const model::GenerationDefaults& recommended);

  // Sets `name`, written with - or _; the value "default" restores the initial one. kInvalid names
  // the range, or the nearest name if `name` is unknown.
  Status set(std::string name, const std::string& value);
  // Returns one setting per line, or only the named one.
  std::string table() const;
  Result<std::string> show(std::string name) const;

  float temperature() const { return params().temperature; }
  int max_tokens() const;  // 0: as many as the context leaves
  // Returns the seed, the sampling parameters and the length of the answer; attempt i draws with
  // seed + i.
  void apply(service::Request& request, uint64_t attempt) const;

 private:
  SamplingParams params() const;
  std::map<std::string, std::string, std::less<>> values_, initial_;  // by flag name
};

}  // namespace skiff::apps
