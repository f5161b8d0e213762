// workload/trace.h -- recorded requests: when each came, how long it was, and which prefix blocks
// it shared.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "message/request.h"

namespace skiff::workload {

struct TracedRequest {
  double at = 0;              // seconds since the first request
  int input = 0, output = 0;  // tokens
  // One hash for each kBlockTokens of the input; equal blocks have equal hashes. Empty if the trace
  // has none.
  std::vector<uint64_t> hashes;
};

// Parses either of two formats, recognised by the first line: Mooncake's JSON lines ({"timestamp":
// ms, "input_length", "output_length", "hash_ids"}, 512 tokens a hash) and Azure's CSV
// (TIMESTAMP,ContextTokens,GeneratedTokens). The result is sorted by time. An Error names the line.
struct Trace {
  static constexpr int kBlockTokens = 512;
  std::vector<TracedRequest> requests;
};
Result<Trace> parse_trace(std::string_view text);
Trace read_trace(const std::string& path);  // throws LoadError; plain text, not compressed

// Makes up a prompt of tokens in [0, vocab) with the length and the shared blocks that the trace
// records; the same request and seed always give the same tokens. Without hashes every request has
// tokens of its own.
std::vector<Token> prompt_of(const TracedRequest& request, size_t number, int vocab,
                             uint64_t seed = 0);

}  // namespace skiff::workload
