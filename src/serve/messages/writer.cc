#include "serve/messages/writer.h"

#include "base/json_writer.h"
#include "serve/turn/items.h"

namespace skiff::messages {
namespace {

using answer::AnswerEvent;
using answer::Part;
using turn::sse_event;

// A thinking block must have a signature, by which Anthropic's service knows its own. Ours is not
// looked at when it comes back.
constexpr std::string_view kSignature = "unsigned";

// Empty while the answer goes on.
std::string_view stop_reason(const service::Reply& reply, bool calls) {
  if (reply.finish == Finish::kLength) return "max_tokens";
  if (std::holds_alternative<std::string>(reply.stop_reason)) return "stop_sequence";
  return calls ? "tool_use" : "end_turn";
}

void write_stop(const service::Reply& reply, bool calls, JsonWriter& json) {
  json.key("stop_reason").string(stop_reason(reply, calls)).key("stop_sequence");
  if (const auto* text = std::get_if<std::string>(&reply.stop_reason))
    json.string(*text);
  else
    json.null();
}

void write_usage(int input, int output, JsonWriter& json) {
  json.key("usage").open_object().key("input_tokens").integer(input);
  json.key("output_tokens").integer(output).close_object();
}

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

class Writer : public turn::TurnWriter {
 public:
  Writer(turn::TurnInfo info, bool omits_thinking)
      : info_(std::move(info)), omits_thinking_(omits_thinking) {}

  std::string open() override {
    std::string data;
    JsonWriter json(data);
    json.open_object().key("type").string("message_start").key("message").open_object();
    head(json);
    json.key("content").open_array().close_array();
    json.key("stop_reason").null().key("stop_sequence").null();
    write_usage(info_.prompt_tokens, 0, json);
    json.close_object().close_object();
    return sse_event("message_start", data);
  }

  std::string piece(const service::Reply& reply) override {
    std::string out;
    for (const AnswerEvent& event : reply.parts) add(event, out);
    if (reply.finish == Finish::kNone) return out;
    close_block(out);
    std::string data;
    JsonWriter json(data);
    json.open_object().key("type").string("message_delta").key("delta").open_object();
    write_stop(reply, calls_ > 0, json);
    json.close_object();
    write_usage(info_.prompt_tokens, reply.usage.completion, json);
    json.close_object();
    return out + sse_event("message_delta", data) +
           sse_event("message_stop", R"({"type":"message_stop"})");
  }

  std::string failure(const http::ApiError& error) override {
    return sse_event("error", error_text(error, info_.id));
  }

  std::string keep_alive() override { return sse_event("ping", R"({"type":"ping"})"); }

  std::string whole(const service::Reply& answer) override {
    std::string body;
    JsonWriter json(body);
    json.open_object();
    head(json);
    const bool calls = write_content(answer.parts, json);
    write_stop(answer, calls, json);
    write_usage(answer.usage.prompt, answer.usage.completion, json);
    json.close_object();
    return body;
  }

 private:
  enum class Block { kNone, kThinking, kText, kCall };

  void head(JsonWriter& json) const {
    json.key("id").string("msg_" + info_.id).key("type").string("message");
    json.key("role").string("assistant").key("model").string(info_.model);
  }

  void add(const AnswerEvent& event, std::string& out) {
    switch (event.part) {
      case Part::kReasoning:
        enter(Block::kThinking, R"({"type":"thinking","thinking":"","signature":""})", out);
        if (!omits_thinking_) delta("thinking_delta", "thinking", event.text, out);
        return;
      case Part::kContent:
        enter(Block::kText, R"({"type":"text","text":""})", out);
        return delta("text_delta", "text", event.text, out);
      case Part::kCallBegin:
        close_block(out);
        ++calls_;
        return enter(Block::kCall, call_block(event), out);
      case Part::kArguments:
        return delta("input_json_delta", "partial_json", event.text, out);
      case Part::kBroken:
        --calls_;
        return close_block(out);
      case Part::kCallEnd:
        return close_block(out);
    }
  }

  static std::string call_block(const AnswerEvent& event) {
    std::string out;
    JsonWriter json(out);
    json.open_object().key("type").string("tool_use").key("id").string(event.id);
    json.key("name").string(event.text).key("input").open_object().close_object().close_object();
    return out;
  }

  void enter(Block block, std::string_view start, std::string& out) {
    if (block_ == block) return;
    close_block(out);
    block_ = block;
    out +=
        sse_event("content_block_start",
                  fmt::format(R"({{"type":"content_block_start","index":{},"content_block":{}}})",
                              index_, start));
  }

  void delta(std::string_view type, std::string_view field, std::string_view text,
             std::string& out) const {
    std::string data;
    JsonWriter json(data);
    json.open_object().key("type").string("content_block_delta").key("index").integer(index_);
    json.key("delta").open_object().key("type").string(type).key(field).string(text);
    json.close_object().close_object();
    out += sse_event("content_block_delta", data);
  }

  void close_block(std::string& out) {
    if (block_ == Block::kNone) return;
    if (block_ == Block::kThinking) delta("signature_delta", "signature", kSignature, out);
    block_ = Block::kNone;
    out += sse_event("content_block_stop",
                     fmt::format(R"({{"type":"content_block_stop","index":{}}})", index_++));
  }

  struct WholeBlock {
    Block kind;
    std::string text, id, name;
  };

  static std::vector<WholeBlock> blocks_of(const answer::AnswerEvents& events) {
    std::vector<WholeBlock> blocks;
    for (const AnswerEvent& event : events) {
      if (event.part == Part::kCallBegin)
        blocks.push_back({Block::kCall, {}, event.id, event.text});
      else if (event.part == Part::kArguments)
        blocks.back().text += event.text;
      else if (event.part == Part::kBroken)
        blocks.pop_back();
      else if (event.part != Part::kCallEnd)
        add_text(event.part == Part::kContent ? Block::kText : Block::kThinking, event.text,
                 blocks);
    }
    return blocks;
  }

  static void add_text(Block kind, const std::string& text, std::vector<WholeBlock>& blocks) {
    if (blocks.empty() || blocks.back().kind != kind) blocks.push_back({kind, {}, {}, {}});
    blocks.back().text += text;
  }

  // True if there are calls.
  bool write_content(const answer::AnswerEvents& events, JsonWriter& json) const {
    bool calls = false;
    json.key("content").open_array();
    for (const WholeBlock& block : blocks_of(events)) {
      calls = calls || block.kind == Block::kCall;
      write_block(block, json);
    }
    json.close_array();
    return calls;
  }

  void write_block(const WholeBlock& block, JsonWriter& json) const {
    json.open_object().key("type");
    if (block.kind == Block::kText) {
      json.string("text").key("text").string(block.text);
    } else if (block.kind == Block::kThinking) {
      json.string("thinking").key("thinking");
      json.string(omits_thinking_ ? std::string() : block.text);
      json.key("signature").string(kSignature);
    } else {
      // Arguments that max_tokens has cut off are no JSON.
      const bool complete = static_cast<bool>(parse_json(block.text));
      json.string("tool_use").key("id").string(block.id).key("name").string(block.name);
      json.key("input").json(complete ? block.text : "{}");
    }
    json.close_object();
  }

  const turn::TurnInfo info_;
  const bool omits_thinking_;
  Block block_ = Block::kNone;
  int index_ = 0, calls_ = 0;
};

}  // namespace

std::unique_ptr<turn::TurnWriter> make_writer(turn::TurnInfo info, const turn::TurnBody& body) {
  const OrderedJson* thinking = turn::member(body.json, "thinking");
  const OrderedJson* display = thinking ? turn::member(*thinking, "display") : nullptr;
  return std::make_unique<Writer>(std::move(info), display && *display == "omitted");
}

std::string error_text(const http::ApiError& error, const std::string& request_id) {
  return http::json_text(
      {{"type", "error"},
       {"error", {{"type", error_type(error.status)}, {"message", error.message}}},
       {"request_id", request_id}});
}

}  // namespace skiff::messages
