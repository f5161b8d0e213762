// route/prompt.h -- what the router knows of a request's prompt: how long it is about, and names
// for its beginnings, by which requests with a common prefix find the same backend.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace skiff::route {

struct PromptSettings {
  size_t block_bytes = 256;  // bytes of the prompt's JSON for each name
  size_t max_blocks = 4096;  // what lies behind these has no names
};

struct Prompt {
  // blocks[i] names the first (i + 1) * block_bytes bytes: XXH64 over the block with the name of
  // the one before it as the seed.
  std::vector<uint64_t> blocks;
  int64_t tokens = 1;     // an estimate: a quarter of the bytes
  bool readable = false;  // the body is a JSON object
  // The body has a member disaggregate_info, or one whose name may hide it behind escapes.
  bool disaggregated = false;
};

// Reads the members that make a prompt, in the order in which chat templates write them: model,
// salt of the cache, tools, system, messages or prompt or input; then token ids, and what is
// reranked, scored or pooled. They are taken as they are written, so only clients that write alike
// share prefixes; each does with its own earlier turns.
Prompt read_prompt(std::string_view body, const PromptSettings& settings = {});

}  // namespace skiff::route
