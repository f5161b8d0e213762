// grammar/fuzz_testing.h -- what the fuzz targets of constraints have in common.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "grammar/matching_testing.h"

namespace skiff::grammar::testing {

// Compiles any bytes as a constraint of this kind, under small bounds, and draws some tokens as the
// bits of the input say. What a mask allows must be accepted.
inline void follow_any(ConstraintKind kind, std::string_view input) {
  static const auto vocabulary = byte_vocabulary(
      {"\"}", "\":", "null", "12", "ab", "\xC3\xA9", mark_of("<x>"), mark_of("<tool_call>")});
  constexpr size_t kSteps = 12;
  Limits limits;
  limits.compile_fuel = 200'000;
  limits.step_fuel = 50'000;
  const auto grammar = compile({.kind = kind, .text = std::string(input)}, vocabulary, limits);
  if (!grammar) {
    SKIFF_CHECK(!grammar.error().what.empty(), "a refusal without a reason");
    return;
  }
  Matcher matcher(*grammar);
  std::vector<uint32_t> mask(vocabulary->mask_words());
  for (size_t step = 0; step < kSteps && matcher.fill(mask); ++step) {
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < vocabulary->width(); ++token)
      if (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) allowed.push_back(token);
    const auto pick = static_cast<uint8_t>(input.empty() ? 0 : input[step % input.size()]);
    const int32_t token = allowed[(pick * 31u + step) % allowed.size()];
    SKIFF_CHECK(matcher.accept(token), "token {} is allowed and not accepted", token);
  }
}

}  // namespace skiff::grammar::testing
