// workload/trace.h -- recorded arrivals: when requests came, how long they were, what they shared.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "message/request.h"

namespace skiff {

struct TracedRequest {
  double at = 0;                 // seconds since the first request
  int input = 0, output = 0;     // tokens
  std::vector<uint64_t> hashes;  // one for each block_tokens of the input: equal blocks, equal
                                 // numbers; empty if the trace does not tell
};

// Two formats, told apart by their first line: Mooncake's JSON lines ({"timestamp": ms,
// "input_length", "output_length", "hash_ids"}, 512 tokens a hash) and Azure's CSV
// (TIMESTAMP,ContextTokens,GeneratedTokens). Sorted by time. An Error names the line.
struct Trace {
  static constexpr int kBlockTokens = 512;
  std::vector<TracedRequest> requests;
};
Result<Trace> parse_trace(std::string_view text);
Trace read_trace(const std::string& path);  // throws LoadError; plain text, not compressed

// Tokens with the lengths and the sharing that the trace tells; the same request, the same tokens.
// Without hashes every request has tokens of its own. Tokens are in [0, vocab).
std::vector<Token> prompt_of(const TracedRequest& request, size_t number, int vocab);

}  // namespace skiff
