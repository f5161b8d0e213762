#include "workload/sse.h"

#include <algorithm>

#include "base/json.h"

namespace skiff::workload {
namespace {

bool has_text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() &&
         !found->get_ref<const std::string&>().empty();
}

// Covers the fields of both endpoints, and the two names of the reasoning field.
bool carries_text(const Json& event) {
  const auto choices = event.find("choices");
  if (choices == event.end() || !choices->is_array()) return false;
  for (const Json& choice : *choices) {
    if (!choice.is_object()) continue;
    if (has_text(choice, "text")) return true;
    const auto delta = choice.find("delta");
    if (delta == choice.end() || !delta->is_object()) continue;
    for (const char* key : {"content", "reasoning_content", "reasoning"})
      if (has_text(*delta, key)) return true;
  }
  return false;
}

// Returns whether a reply is complete with this event.
bool finishes(const Json& event) {
  const auto choices = event.find("choices");
  if (choices == event.end() || !choices->is_array()) return false;
  return std::ranges::any_of(*choices, [](const Json& choice) {
    return choice.is_object() && choice.contains("finish_reason") &&
           !choice.at("finish_reason").is_null();
  });
}

int count_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int>() : 0;
}

void read_usage(const Json& event, StreamOutcome& out) {
  const auto usage = event.find("usage");
  if (usage == event.end() || !usage->is_object()) return;
  out.prompt = count_at(*usage, "prompt_tokens");
  out.completion = count_at(*usage, "completion_tokens");
  const auto details = usage->find("prompt_tokens_details");
  if (details != usage->end() && details->is_object())
    out.cached = count_at(*details, "cached_tokens");
}

}  // namespace

void SseReader::feed(std::string_view bytes, double now, StreamOutcome& out) {
  pending_ += bytes;
  size_t begin = 0;
  for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string_view line(pending_.data() + begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with("data:")) continue;
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    event(line, now, out);
  }
  pending_.erase(0, begin);
}

void SseReader::event(std::string_view data, double now, StreamOutcome& out) {
  if (data.starts_with("[DONE]")) {
    complete_ = true;
    return;
  }
  const auto json = parse_json(data);
  if (!json || !json->is_object()) {
    out.error = "an event is no JSON object";
    return;
  }
  if (json->contains("error")) out.error = json->at("error").dump().substr(0, 300);
  read_usage(*json, out);
  // A reply may have no text at all, as of special tokens alone; it then comes with its end.
  if (!carries_text(*json) && !(out.first == 0 && finishes(*json))) return;
  if (out.first == 0)
    out.first = now;
  else
    out.gaps.push_back(now - last_);
  last_ = now;
}

}  // namespace skiff::workload
