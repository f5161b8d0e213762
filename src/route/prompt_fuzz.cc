// Reads arbitrary bytes as a request's body; what the names of blocks promise must hold.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "route/prefix_cache.h"
#include "route/prompt.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff::route;  // NOLINT(google-build-using-namespace)
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const Prompt prompt = read_prompt(body, {.block_bytes = 8, .max_blocks = 64});
  SKIFF_CHECK(prompt.blocks.size() <= 64 && prompt.tokens >= 1);
  PrefixCache cache(16);
  cache.add(prompt.blocks);
  SKIFF_CHECK(cache.size() <= 16 && cache.match(prompt.blocks) <= prompt.blocks.size());
  return 0;
}
