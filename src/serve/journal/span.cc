#include "serve/journal/span.h"

#include <fmt/format.h>

#include "base/json_writer.h"
#include "serve/service/metric_names.h"

namespace skiff::journal {
namespace {

// The conventions for generative AI are still in development: their names are here and nowhere
// else.
constexpr char kOperation[] = "gen_ai.operation.name", kProvider[] = "gen_ai.provider.name",
               kRequestModel[] = "gen_ai.request.model", kChoices[] = "gen_ai.request.choice.count",
               kStream[] = "gen_ai.request.stream", kMaxTokens[] = "gen_ai.request.max_tokens",
               kTemperature[] = "gen_ai.request.temperature", kTopP[] = "gen_ai.request.top_p",
               kTopK[] = "gen_ai.request.top_k", kFrequency[] = "gen_ai.request.frequency_penalty",
               kPresence[] = "gen_ai.request.presence_penalty", kSeed[] = "gen_ai.request.seed",
               kResponseId[] = "gen_ai.response.id", kResponseModel[] = "gen_ai.response.model",
               kFinishes[] = "gen_ai.response.finish_reasons",
               kFirstChunk[] = "gen_ai.response.time_to_first_chunk",
               kInput[] = "gen_ai.usage.input_tokens", kOutput[] = "gen_ai.usage.output_tokens",
               kCached[] = "gen_ai.usage.cache_read.input_tokens",
               kReasoning[] = "gen_ai.usage.reasoning.output_tokens", kErrorType[] = "error.type",
               kStatus[] = "http.response.status_code", kRoute[] = "http.route",
               kMethod[] = "http.request.method";
// Names of vLLM's.
constexpr char kRequestId[] = "gen_ai.request.id", kQueued[] = "gen_ai.latency.time_in_queue",
               kFirstToken[] = "gen_ai.latency.time_to_first_token",
               kLatency[] = "gen_ai.latency.e2e";
// Names of our own.
constexpr char kConstraint[] = "skiff.constraint", kMaskTime[] = "skiff.constraint.mask_time",
               kRepetition[] = "skiff.request.repetition_penalty", kCalls[] = "skiff.tool_calls",
               kBroken[] = "skiff.tool_call_parse_failures";

// Writes the list of attributes.
class Attributes {
 public:
  explicit Attributes(JsonWriter& json) : json_(json) { json_.key("attributes").open_array(); }
  Attributes& text(const char* name, std::string_view value) {
    begin(name).key("stringValue").string(value);
    return end();
  }
  // OTLP writes 64-bit integers as strings.
  Attributes& integer(const char* name, int64_t value) {
    begin(name).key("intValue").string(fmt::format("{}", value));
    return end();
  }
  Attributes& number(const char* name, double value) {
    begin(name).key("doubleValue").number(value);
    return end();
  }
  Attributes& boolean(const char* name, bool value) {
    begin(name).key("boolValue").json(value ? "true" : "false");
    return end();
  }
  Attributes& texts(const char* name, const std::vector<const char*>& values) {
    begin(name).key("arrayValue").open_object().key("values").open_array();
    for (const char* value : values)
      json_.open_object().key("stringValue").string(value).close_object();
    json_.close_array().close_object();
    return end();
  }
  void close() { json_.close_array(); }

 private:
  JsonWriter& begin(const char* name) {
    return json_.open_object().key("key").string(name).key("value").open_object();
  }
  Attributes& end() {
    json_.close_object().close_object();
    return *this;
  }
  JsonWriter& json_;
};

std::string nanoseconds(std::chrono::system_clock::time_point time) {
  return fmt::format(
      "{}", std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

// Empty unless the request failed.
std::string error_of(const Entry& entry) {
  if (entry.summary->refusal) return service::label_of(*entry.summary->refusal);
  if (entry.record && entry.record->status >= 400) return fmt::format("{}", entry.record->status);
  return *entry.aborted_by() ? "cancelled" : "";
}

void write_attributes(const Entry& entry, const std::string& error, JsonWriter& json) {
  const service::RequestSummary& summary = *entry.summary;
  Attributes out(json);
  out.text(kOperation, summary.tag->operation).text(kProvider, "skiff");
  out.text(kRequestModel, summary.tag->model).text(kResponseModel, summary.tag->model);
  out.text(kRequestId, entry.request_id).text(kResponseId, summary.tag->id);
  out.integer(kChoices, summary.n).boolean(kStream, summary.tag->streamed);
  out.integer(kMaxTokens, summary.max_tokens).number(kTemperature, summary.temperature);
  out.number(kTopP, summary.top_p).integer(kTopK, summary.top_k);
  out.number(kFrequency, summary.frequency).number(kPresence, summary.presence);
  out.number(kRepetition, summary.repetition);
  out.integer(kSeed, static_cast<int64_t>(summary.seed));
  std::vector<const char*> finishes;
  finishes.reserve(summary.finishes.size());
  for (const Finish finish : summary.finishes) finishes.push_back(finish_name(finish));
  out.texts(kFinishes, finishes);
  out.integer(kInput, summary.usage.prompt).integer(kOutput, summary.usage.completion);
  out.integer(kCached, summary.usage.cached).integer(kReasoning, summary.usage.reasoning);
  if (summary.queued >= 0) out.number(kQueued, summary.queued);
  if (summary.first_token >= 0)
    out.number(kFirstToken, summary.first_token).number(kFirstChunk, summary.first_token);
  out.number(kLatency, entry.seconds());
  if (!summary.constraint.empty())
    out.text(kConstraint, summary.constraint).number(kMaskTime, summary.mask_seconds);
  if (summary.calls + summary.broken_calls > 0)
    out.integer(kCalls, summary.calls).integer(kBroken, summary.broken_calls);
  out.text(kRoute, entry.route);
  if (!entry.method.empty()) out.text(kMethod, entry.method);
  if (entry.record && entry.record->status > 0) out.integer(kStatus, entry.record->status);
  if (!error.empty()) out.text(kErrorType, error);
  out.close();
}

}  // namespace

std::string span_json(const Entry& entry, const SpanContext& context) {
  constexpr int kServerKind = 2, kErrorStatus = 2;
  const auto took = std::chrono::duration_cast<std::chrono::system_clock::duration>(
      std::chrono::duration<double>(entry.seconds()));
  std::string text;
  JsonWriter json(text);
  json.open_object().key("traceId").string(context.trace_id).key("spanId").string(context.span_id);
  if (!context.parent_id.empty()) json.key("parentSpanId").string(context.parent_id);
  const service::RequestTag& tag = *entry.summary->tag;
  json.key("name").string(tag.operation + " " + tag.model).key("kind").integer(kServerKind);
  json.key("startTimeUnixNano").string(nanoseconds(entry.arrived));
  json.key("endTimeUnixNano").string(nanoseconds(entry.arrived + took));
  const std::string error = error_of(entry);
  write_attributes(entry, error, json);
  json.key("status").open_object();
  if (!error.empty()) json.key("code").integer(kErrorStatus).key("message").string(error);
  json.close_object().close_object();
  return text;
}

std::string traces_json(const std::vector<std::string>& spans, const std::string& service_name,
                        const std::string& version) {
  std::string text;
  JsonWriter json(text);
  json.open_object().key("resourceSpans").open_array().open_object();
  json.key("resource").open_object();
  Attributes(json).text("service.name", service_name).text("service.version", version).close();
  json.close_object();
  json.key("scopeSpans").open_array().open_object();
  json.key("scope").open_object().key("name").string("skiff").key("version").string(version);
  json.close_object().key("spans").open_array();
  for (const std::string& span : spans) json.json(span);
  json.close_array().close_object().close_array().close_object().close_array().close_object();
  return text;
}

}  // namespace skiff::journal
