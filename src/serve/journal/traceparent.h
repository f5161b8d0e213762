// serve/journal/traceparent.h -- the header of W3C's Trace Context: which trace a request belongs
// to, and whether its caller records it.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace skiff::journal {

struct TraceParent {
  std::string trace_id;  // 32 hexadecimal digits
  std::string span_id;   // 16: the caller's span
  bool sampled = false;
};

// Nothing if the header is not as the recommendation wants it: the request then begins a trace.
std::optional<TraceParent> parse_traceparent(std::string_view header);

}  // namespace skiff::journal
