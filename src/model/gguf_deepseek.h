// model/gguf_deepseek.h -- what the metadata of a GGUF file say about DeepSeek's models beyond what
// all architectures share, in the keys of a config.json.
#pragma once
#include <string>

#include "base/json.h"

namespace skiff::model {

// The metadata of one file, and what is in front of the keys of its architecture.
struct GgufKeys {
  const Json& metadata;
  const std::string& prefix;  // "deepseek2."
  const std::string& where;   // the file, for errors

  // Null where there is no such key.
  Json find(const char* key) const { return metadata.value(prefix + key, Json(nullptr)); }
  static constexpr const char* kMissing = "is missing; convert the model anew";
  // Throws a LoadError that names the key.
  [[noreturn]] void refuse(const char* key, const std::string& why) const;
  // Throws a LoadError where there is no such key.
  void need(const char* key) const {
    if (find(key).is_null()) refuse(key, kMissing);
  }
  // Throws a LoadError where the value is there and is no number.
  double number(const char* key, double fallback) const;
  // Returns an integer in [1, 2^20]. Throws a LoadError that names the key where there is none.
  int64_t size(const char* key) const;
};

// DeepSeek-MoE, "deepseek": chosen experts keep the weights that softmax gives them.
void complete_deepseek(Json& config, const GgufKeys& keys);

// DeepSeek-V2, V3 and what has their shape, "deepseek2": the sizes of latent attention, which are
// those of heads in files that keep kv_b whole and have keys of their own where it is split; the
// scoring of experts, which tells V3 from V2; and YaRN.
void complete_deepseek2(Json& config, const GgufKeys& keys);

}  // namespace skiff::model
