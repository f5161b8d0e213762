// message/logprobs_mode.h -- which numbers are reported as the log-probabilities of drawn tokens.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace skiff {

// Raw: of the logits as the model gives them. Processed: of those from which tokens are drawn,
// behind biases, penalties, bans and constraints and, unless the request is greedy, temperature,
// min_p, top_k and top_p; what they exclude has -inf. Prompts always have raw log-probabilities.
enum class LogprobsMode : uint8_t {
  kRawLogprobs,
  kProcessedLogprobs,
  kRawLogits,
  kProcessedLogits,
};
constexpr std::array<std::string_view, 4> kLogprobsModeNames = {
    "raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"};

constexpr bool is_processed(LogprobsMode mode) {
  return mode == LogprobsMode::kProcessedLogprobs || mode == LogprobsMode::kProcessedLogits;
}
constexpr bool is_of_logits(LogprobsMode mode) {
  return mode == LogprobsMode::kRawLogits || mode == LogprobsMode::kProcessedLogits;
}

}  // namespace skiff
