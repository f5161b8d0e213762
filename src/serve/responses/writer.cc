#include "serve/responses/writer.h"

#include "serve/responses/items.h"

namespace skiff::responses {
namespace {

using answer::AnswerEvent;
using answer::Part;
using Kind = Item::Kind;

constexpr const char* kNone = "null";

// The text of a field of the request, or what stands for its absence.
std::string given(const OrderedJson& body, const char* name, const char* fallback) {
  const auto found = body.find(name);
  if (found == body.end() || found->is_null()) return fallback;
  return found->dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// The fields of the request that a response repeats, as members of its object.
std::string repeated(const OrderedJson& body) {
  std::string out;
  JsonWriter json(out);
  for (const auto& [name, fallback] : {std::pair{"instructions", kNone},
                                       {"max_output_tokens", kNone},
                                       {"temperature", kNone},
                                       {"top_p", kNone},
                                       {"user", kNone},
                                       {"metadata", "{}"},
                                       {"tools", "[]"},
                                       {"tool_choice", "\"auto\""},
                                       {"parallel_tool_calls", "true"},
                                       {"text", R"({"format":{"type":"text"}})"},
                                       {"reasoning", R"({"effort":null,"summary":null})"}})
    json.key(name).json(given(body, name, fallback));
  return out;
}

void write_usage(const service::Usage& usage, JsonWriter& json) {
  json.key("usage").open_object().key("input_tokens").integer(usage.prompt);
  json.key("input_tokens_details").open_object().key("cached_tokens").integer(usage.cached);
  json.key("cache_write_tokens").integer(0).close_object();
  json.key("output_tokens").integer(usage.completion);
  json.key("output_tokens_details").open_object();
  json.key("reasoning_tokens").integer(usage.reasoning).close_object();
  json.key("total_tokens").integer(usage.prompt + usage.completion).close_object();
}

class Writer : public turn::TurnWriter {
 public:
  Writer(turn::TurnInfo info, const turn::TurnBody& body)
      : info_(std::move(info)), repeated_(repeated(body.json)), counted_(body.counted) {}

  std::string open() override {
    const std::string response = response_json("in_progress", {}, nullptr);
    std::string out = event("response.created", "\"response\":" + response);
    return out += event("response.in_progress", "\"response\":" + response);
  }

  std::string piece(const service::Reply& reply) override {
    std::string out;
    for (const AnswerEvent& event : reply.parts) add(event, out);
    if (reply.finish == Finish::kNone) return out;
    const bool cut = reply.finish == Finish::kLength;
    end_item(!cut, out);
    const char* status = cut ? "incomplete" : "completed";
    return out + event(std::string("response.") + status,
                       "\"response\":" + response_json(status, {}, &reply.usage));
  }

  std::string failure(const http::ApiError& error) override {
    std::string members;
    JsonWriter json(members);
    json.key("code").string(error.code).key("message").string(error.message).key("param");
    if (error.param.empty())
      json.null();
    else
      json.string(error.param);
    std::string out = event("error", members);
    return out + event("response.failed",
                       "\"response\":" + response_json("failed", error.message, nullptr));
  }

  std::string whole(const service::Reply& answer) override {
    std::string unsent;
    for (const AnswerEvent& event : answer.parts) add(event, unsent);
    const bool cut = answer.finish == Finish::kLength;
    end_item(!cut, unsent);
    return response_json(cut ? "incomplete" : "completed", {}, &answer.usage);
  }

 private:
  void add(const AnswerEvent& event, std::string& out) {
    switch (event.part) {
      case Part::kReasoning:
        enter(Kind::kReasoning, out);
        return text("response.reasoning_text.delta", event.text, out);
      case Part::kContent:
        enter(Kind::kMessage, out);
        return text("response.output_text.delta", event.text, out);
      case Part::kCallBegin:
        end_item(true, out);
        items_.push_back({.kind = Kind::kCall,
                          .id = item_id(Kind::kCall, items_.size(), info_.id),
                          .call_id = event.id,
                          .name = event.text});
        return begin_item(out);
      case Part::kArguments:
        return text("response.function_call_arguments.delta", event.text, out);
      case Part::kBroken:
        return end_item(/*complete=*/false, out);
      case Part::kCallEnd:
        return end_item(/*complete=*/true, out);
    }
  }

  void enter(Kind kind, std::string& out) {
    if (open_ && items_.back().kind == kind) return;
    end_item(true, out);
    items_.push_back({.kind = kind, .id = item_id(kind, items_.size(), info_.id)});
    begin_item(out);
  }

  void begin_item(std::string& out) {
    open_ = true;
    std::string item;
    JsonWriter json(item);
    write_item(items_.back(), /*begun=*/true, json);
    out += event("response.output_item.added",
                 fmt::format(R"("output_index":{},"item":{})", items_.size() - 1, item));
    if (items_.back().kind == Kind::kCall) return;
    out += event("response.content_part.added", place() + ",\"part\":" + part());
  }

  void text(const char* name, const std::string& piece, std::string& out) {
    items_.back().text += piece;
    std::string members = place() + ",";
    JsonWriter json(members);
    json.key("delta").string(piece);
    if (items_.back().kind == Kind::kMessage) json.key("logprobs").open_array().close_array();
    out += event(name, members);
  }

  void end_item(bool complete, std::string& out) {
    if (!std::exchange(open_, false)) return;
    Item& item = items_.back();
    item.complete = complete;
    out += done_event(item);
    if (item.kind != Kind::kCall)
      out += event("response.content_part.done", place() + ",\"part\":" + part());
    std::string whole;
    JsonWriter json(whole);
    write_item(item, /*begun=*/false, json);
    out += event("response.output_item.done",
                 fmt::format(R"("output_index":{},"item":{})", items_.size() - 1, whole));
  }

  std::string done_event(const Item& item) {
    std::string members = place() + ",";
    JsonWriter json(members);
    if (item.kind == Kind::kCall) {
      json.key("name").string(item.name).key("arguments").string(item.text);
      return event("response.function_call_arguments.done", members);
    }
    json.key("text").string(item.text);
    if (item.kind == Kind::kReasoning) return event("response.reasoning_text.done", members);
    json.key("logprobs").open_array().close_array();
    return event("response.output_text.done", members);
  }

  // Where the open item stands.
  std::string place() const {
    std::string out = fmt::format(R"("output_index":{},"item_id":)", items_.size() - 1);
    JsonWriter json(out);
    json.string(items_.back().id);
    if (items_.back().kind != Kind::kCall) json.key("content_index").integer(0);
    return out;
  }

  std::string part() const {
    std::string out;
    JsonWriter json(out);
    write_part(items_.back(), json);
    return out;
  }

  std::string event(const std::string& name, const std::string& members) {
    return turn::sse_event(name, fmt::format(R"({{"type":"{}","sequence_number":{},{}}})", name,
                                             sequence_++, members));
  }

  // A call that is broken is no part of the output: its text follows as a message.
  std::string response_json(const std::string& status, const std::string& error,
                            const service::Usage* usage) const {
    std::string out;
    JsonWriter json(out);
    json.open_object().key("id").string("resp_" + info_.id).key("object").string("response");
    json.key("created_at").integer(info_.created).key("status").string(status);
    json.key("model").string(info_.model).key("error");
    if (error.empty())
      json.null();
    else
      json.open_object()
          .key("code")
          .string("server_error")
          .key("message")
          .string(error)
          .close_object();
    json.key("incomplete_details")
        .json(status == "incomplete" ? R"({"reason":"max_output_tokens"})" : kNone);
    json.key("output").open_array();
    for (const Item& item : items_)
      if (item.complete || item.kind != Kind::kCall || status == "incomplete")
        write_item(item, /*begun=*/false, json);
    json.close_array();
    json.members(repeated_);
    json.key("previous_response_id").null().key("store").json("false");
    json.key("background").json("false").key("truncation").string("disabled");
    if (usage)
      write_usage(*usage, json);
    else
      json.key("usage").null();
    json.close_object();
    return out;
  }

  const turn::TurnInfo info_;
  const std::string repeated_;
  const std::shared_ptr<const void> counted_;
  std::vector<Item> items_;
  bool open_ = false;
  int sequence_ = 0;
};

}  // namespace

std::unique_ptr<turn::TurnWriter> make_writer(turn::TurnInfo info, const turn::TurnBody& body) {
  return std::make_unique<Writer>(std::move(info), body);
}

}  // namespace skiff::responses
