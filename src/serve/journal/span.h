// serve/journal/span.h -- one request as a span of OpenTelemetry, in the JSON of OTLP, with the
// names of its conventions for generative AI. Prompts and answers are never part of it.
#pragma once
#include <string>
#include <vector>

#include "serve/journal/entry.h"

namespace skiff::journal {

struct SpanContext {
  std::string trace_id;   // 32 hexadecimal digits
  std::string span_id;    // 16
  std::string parent_id;  // 16; empty: the span is the first of its trace
};

// A JSON object of opentelemetry.proto.trace.v1.Span. `entry` has a summary.
std::string span_json(const Entry& entry, const SpanContext& context);

// The body of a request to /v1/traces with these spans.
std::string traces_json(const std::vector<std::string>& spans, const std::string& service_name,
                        const std::string& version);

}  // namespace skiff::journal
