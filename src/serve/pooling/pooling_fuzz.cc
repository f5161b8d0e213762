// Bodies of requests to embed, score and rerank.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "serve/pooling/route.h"

namespace skiff::pooling {
namespace {

// Every call that is accepted has something to pool, and a query for each document.
void check(const OrderedJson& body, const RouteKind& kind) {
  const auto call = parse_call(body, kind);
  if (!call) return;
  const bool pairs = !call->documents.empty();
  const bool whole = call->queries.size() == 1 || call->queries.size() == call->documents.size();
  if (pairs ? !whole : call->inputs.empty()) __builtin_trap();
}

}  // namespace
}  // namespace skiff::pooling

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto body = skiff::parse_ordered_json({reinterpret_cast<const char*>(data), size},
                                              {.max_bytes = size_t{1} << 20});
  if (!body) return 0;
  for (const auto* kind : {&skiff::pooling::embeddings_route(), &skiff::pooling::reward_route(),
                           &skiff::pooling::classify_route(), &skiff::pooling::rerank_route(),
                           &skiff::pooling::score_route()})
    skiff::pooling::check(*body, *kind);
  return 0;
}
