#include "serve/journal/entry.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/json_writer.h"
#include "serve/service/metric_names.h"

namespace skiff::journal {
namespace {

// RFC 3339 in UTC, with milliseconds.
std::string time_text(std::chrono::system_clock::time_point time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(time - whole);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(whole)), rest.count());
}

void write_ms(JsonWriter& json, const char* name, double seconds) {
  json.key(name);
  if (seconds < 0)
    json.null();
  else
    json.json(fmt::format("{:.3f}", 1e3 * seconds));
}

void write_text(JsonWriter& json, const char* name, const std::string& text) {
  json.key(name);
  if (text.empty())
    json.null();
  else
    json.string(text);
}

void write_boolean(JsonWriter& json, const char* name, bool value) {
  json.key(name).json(value ? "true" : "false");
}

void write_summary(JsonWriter& json, const service::RequestSummary& summary) {
  json.key("id").string(summary.tag->id).key("model").string(summary.tag->model);
  write_boolean(json, "stream", summary.tag->streamed);
  json.key("n").integer(summary.n).key("finish").open_array();
  for (const Finish finish : summary.finishes) json.string(finish_name(finish));
  json.close_array();
  json.key("prompt_tokens").integer(summary.usage.prompt);
  json.key("cached_tokens").integer(summary.usage.cached);
  json.key("completion_tokens").integer(summary.usage.completion);
  json.key("reasoning_tokens").integer(summary.usage.reasoning);
  write_ms(json, "queue_ms", summary.queued);
  write_ms(json, "ttft_ms", summary.first_token);
  write_text(json, "constraint", summary.constraint);
  json.key("masks").integer(static_cast<int64_t>(summary.masks));
  json.key("mask_us").integer(static_cast<int64_t>(1e6 * summary.mask_seconds));
  json.key("tool_calls").integer(summary.calls);
  json.key("tool_call_parse_failures").integer(summary.broken_calls);
  write_text(json, "refused", summary.refusal ? service::label_of(*summary.refusal) : "");
}

}  // namespace

const char* finish_name(Finish finish) {
  switch (finish) {
    case Finish::kStop:
      return "stop";
    case Finish::kLength:
      return "length";
    case Finish::kExhausted:
      return "error";
    default:
      return "abort";
  }
}

void Entry::add(service::RequestSummary prompt) {
  if (!summary) {
    summary = std::move(prompt);
    return;
  }
  const auto least = [](double a, double b) {
    return a < 0 || b < 0 ? std::max(a, b) : std::min(a, b);
  };
  service::RequestSummary& all = *summary;
  all.arrived = std::min(all.arrived, prompt.arrived);
  all.queued = std::max(all.queued, prompt.queued);
  all.first_token = least(all.first_token, prompt.first_token);
  all.total = std::max(all.total, prompt.total);
  all.usage.prompt += prompt.usage.prompt;
  all.usage.cached += prompt.usage.cached;
  all.usage.completion += prompt.usage.completion;
  all.usage.reasoning += prompt.usage.reasoning;
  all.finishes.insert(all.finishes.end(), prompt.finishes.begin(), prompt.finishes.end());
  if (!all.refusal) all.refusal = prompt.refusal;
  all.mask_seconds += prompt.mask_seconds;
  all.masks += prompt.masks;
  all.calls += prompt.calls;
  all.broken_calls += prompt.broken_calls;
}

double Entry::seconds() const {
  if (record) return record->seconds;
  return summary ? summary->total : 0;
}

const char* Entry::aborted_by() const {
  if (!summary) return record && !record->complete ? "client" : "";
  const auto& refusal = summary->refusal;
  if (refusal == service::Refusal::kAborted || refusal == service::Refusal::kPaused)
    return "operator";
  const bool cancelled = std::ranges::count(summary->finishes, Finish::kCancelled) > 0;
  return cancelled || (record && !record->complete) ? "client" : "";
}

std::string log_line(const Entry& entry, const std::string& trace_id) {
  std::string line;
  JsonWriter json(line);
  json.open_object();
  json.key("time").string(time_text(entry.arrived));
  json.key("request_id").string(entry.request_id);
  write_text(json, "method", entry.method);
  json.key("route").string(entry.route);
  json.key("status");
  if (entry.record)
    json.integer(entry.record->status);
  else
    json.null();
  write_ms(json, "total_ms", entry.seconds());
  write_text(json, "aborted_by", entry.aborted_by());
  if (entry.summary) write_summary(json, *entry.summary);
  if (!trace_id.empty()) json.key("trace_id").string(trace_id);
  json.close_object();
  return line;
}

}  // namespace skiff::journal
