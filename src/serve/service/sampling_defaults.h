// serve/service/sampling_defaults.h -- what a request that names no value gets.
#pragma once

namespace skiff::service {

// From the model's generation_config.json, or else the defaults of OpenAI's API.
struct SamplingDefaults {
  float temperature = 1, top_p = 1, repetition = 1, min_p = 0;
  int top_k = 0;
  int max_tokens = 0;  // 0: as many as the context leaves
};

}  // namespace skiff::service
