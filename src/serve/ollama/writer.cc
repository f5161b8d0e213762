#include "serve/ollama/writer.h"

#include <fmt/chrono.h>

#include <utility>
#include <vector>

#include "base/json_writer.h"

namespace skiff::ollama {
namespace {

using answer::AnswerEvent;
using answer::Part;
using Clock = std::chrono::steady_clock;

struct Call {
  std::string name, arguments;
};

// What one line, or the whole answer, says.
struct Said {
  std::string content, thinking;
  std::vector<Call> calls;
  bool empty() const { return content.empty() && thinking.empty() && calls.empty(); }
};

int64_t nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

void write_calls(const std::vector<Call>& calls, JsonWriter& json) {
  json.key("tool_calls").open_array();
  for (const Call& call : calls) {
    // Arguments that num_predict has cut off are no JSON.
    const bool complete = static_cast<bool>(parse_json(call.arguments));
    json.open_object().key("function").open_object().key("name").string(call.name);
    json.key("arguments").json(complete ? call.arguments : "{}");
    json.close_object().close_object();
  }
  json.close_array();
}

// A chat's words are in a message, those of a prompt beside the rest.
void write_said(const Said& said, Endpoint endpoint, JsonWriter& json) {
  const bool chat = endpoint == Endpoint::kChat;
  if (chat) json.key("message").open_object().key("role").string("assistant");
  json.key(chat ? "content" : "response").string(said.content);
  if (!said.thinking.empty()) json.key("thinking").string(said.thinking);
  if (!said.calls.empty()) write_calls(said.calls, json);
  if (chat) json.close_object();
}

class Writer : public turn::TurnWriter {
 public:
  Writer(turn::TurnInfo info, Endpoint endpoint) : info_(std::move(info)), endpoint_(endpoint) {}

  const char* stream_type() const override { return "application/x-ndjson"; }
  std::string open() override { return {}; }
  // A line that is no object would be an error to the clients.
  std::string keep_alive() override { return {}; }

  void note_first_token() override { first_ = Clock::now(); }

  std::string piece(const service::Reply& reply) override {
    Said said;
    for (const AnswerEvent& event : reply.parts) add(event, said);
    if (reply.finish == Finish::kNone) return said.empty() ? "" : line(said, nullptr);
    if (open_call_) said.calls.push_back(std::move(call_));
    std::string out = said.empty() ? "" : line(said, nullptr);
    return out + line({}, &reply);
  }

  std::string failure(const http::ApiError& error) override { return error_text(error) + "\n"; }

  std::string whole(const service::Reply& answer) override {
    Said said;
    for (const AnswerEvent& event : answer.parts) add(event, said);
    if (open_call_) said.calls.push_back(std::move(call_));
    std::string text = line(said, &answer);
    text.pop_back();
    return text;
  }

 private:
  // Tool calls are written when they are complete, because the protocol has no parts of a call.
  void add(const AnswerEvent& event, Said& said) {
    switch (event.part) {
      case Part::kReasoning:
        said.thinking += event.text;
        return;
      case Part::kContent:
        said.content += event.text;
        return;
      case Part::kCallBegin:
        open_call_ = true;
        call_ = {event.text, {}};
        return;
      case Part::kArguments:
        call_.arguments += event.text;
        return;
      case Part::kBroken:
        open_call_ = false;
        return;
      case Part::kCallEnd:
        if (std::exchange(open_call_, false)) said.calls.push_back(std::exchange(call_, {}));
        return;
    }
  }

  // With `end` the last one.
  std::string line(const Said& said, const service::Reply* end) {
    std::string text;
    JsonWriter json(text);
    json.open_object().key("model").string(info_.model);
    json.key("created_at").string(time_text(std::chrono::system_clock::now()));
    write_said(said, endpoint_, json);
    json.key("done").json(end ? "true" : "false");
    if (end) write_end(*end, json);
    json.close_object();
    return text += '\n';
  }

  void write_end(const service::Reply& end, JsonWriter& json) const {
    const auto now = Clock::now();
    const auto first = first_ == Clock::time_point{} ? begun_ : first_;
    json.key("done_reason").string(end.finish == Finish::kLength ? "length" : "stop");
    json.key("total_duration").integer(nanoseconds(now - begun_));
    json.key("load_duration").integer(0);
    json.key("prompt_eval_count").integer(end.usage.prompt);
    json.key("prompt_eval_duration").integer(nanoseconds(first - begun_));
    json.key("eval_count").integer(end.usage.completion);
    json.key("eval_duration").integer(nanoseconds(now - first));
  }

  const turn::TurnInfo info_;
  const Endpoint endpoint_;
  const Clock::time_point begun_ = Clock::now();
  Clock::time_point first_{};
  bool open_call_ = false;
  Call call_;
};

}  // namespace

std::string time_text(std::chrono::system_clock::time_point time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(time - whole);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:09}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(whole)), rest.count());
}

std::unique_ptr<turn::TurnWriter> make_writer(turn::TurnInfo info, Endpoint endpoint) {
  return std::make_unique<Writer>(std::move(info), endpoint);
}

std::string error_text(const http::ApiError& error) {
  return http::json_text({{"error", error.message}});
}

std::string loaded_text(const std::string& model, Endpoint endpoint) {
  std::string text;
  JsonWriter json(text);
  json.open_object().key("model").string(model);
  json.key("created_at").string(time_text(std::chrono::system_clock::now()));
  write_said({}, endpoint, json);
  json.key("done").json("true").key("done_reason").string("load").close_object();
  return text;
}

}  // namespace skiff::ollama
