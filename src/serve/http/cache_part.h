// serve/http/cache_part.h -- how an instance that has judged a request's key tells another one,
// which computes the request, what follows from it.
#pragma once
#include <string_view>

namespace skiff::http {

// A header that no client can send, because of its colon: the answer of ApiKeys::cache_salt() where
// the request came in, which that function then returns.
inline constexpr std::string_view kCachePart = ":cache-part";

}  // namespace skiff::http
