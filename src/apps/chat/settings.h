// apps/chat/settings.h -- what /set may change. The names, ranges and messages are those of the
// flags, so that the two cannot drift apart.
#pragma once
#include <map>
#include <string>

#include "apps/args.h"
#include "base/result.h"
#include "model/loader.h"
#include "serve/service/service.h"

namespace skiff {

class ChatSettings {
 public:
  // A flag that was given, else what the model recommends, else the flag's default. Throws
  // UsageError for a recommendation out of the flag's range.
  ChatSettings(const Args& args, const GenerationDefaults& recommended);

  // `name` with - or _; value "default" goes back to the start. kInvalid names the range, or for an
  // unknown name the nearest one.
  Status set(std::string name, const std::string& value);
  // One setting per line; or the one named.
  std::string table() const;
  Result<std::string> show(std::string name) const;

  float temperature() const { return params().temperature; }
  int max_tokens() const;  // 0: what the context leaves
  // Seed, sampling parameters and the length of the answer; attempt i draws with seed + i.
  void apply(Request& request, uint64_t attempt) const;

 private:
  SamplingParams params() const;
  std::map<std::string, std::string, std::less<>> values_, initial_;  // by flag name
};

}  // namespace skiff
