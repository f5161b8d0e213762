// Bodies of requests to embed, score and rerank.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "serve/pooling/route.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff::pooling;
  const auto body = skiff::parse_ordered_json({reinterpret_cast<const char*>(data), size},
                                              {.max_bytes = size_t{1} << 20});
  if (!body) return 0;
  for (const RouteKind* kind :
       {&embeddings_route(), &reward_route(), &classify_route(), &rerank_route(), &score_route()}) {
    const auto call = parse_call(*body, *kind);
    const bool pairs = call && !call->documents.empty();
    const bool whole =
        !pairs || call->queries.size() == 1 || call->queries.size() == call->documents.size();
    if (!whole || (call && !pairs && call->inputs.empty())) __builtin_trap();
  }
  return 0;
}
