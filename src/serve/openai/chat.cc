// The JSON of POST /v1/chat/completions.
#include "base/json_text.h"
#include "serve/openai/chat_parts.h"
#include "serve/openai/logprobs.h"
#include "serve/openai/shape.h"

namespace skiff::openai {
namespace {

// vLLM puts the prompt's ids beside the choices.
std::string prompt_ids_beside(const PromptInfo& prompt) {
  std::string out = R"(,"prompt_token_ids":)";
  JsonWriter json(out);
  write_token_ids(prompt.tokens, json);
  return out;
}

class ChatWriter : public ChoiceWriter {
 public:
  ChatWriter(int index, const WriterContext& context)
      : index_(index),
        call_(context.call),
        prompt_(context.prompt),
        tokenizer_(context.tokenizer),
        parts_(context.call, context.config) {}

  std::vector<ChoiceEvent> stream(service::Reply reply) override {
    std::vector<ChoiceEvent> out;
    if (!std::exchange(opened_, true)) out.push_back(opening(reply));
    const bool ids = call_.return_token_ids && !reply.tokens.empty();
    const bool logprobs = call_.logprobs && !reply.logprobs.empty();
    if (prompt_.split)
      split(reply, ids, logprobs, out);
    else if (ids || logprobs)
      out.push_back({annotated(reply, content_of(reply.text), ids, logprobs)});
    else if (!reply.text.empty())
      out.push_back({plain(reply.text)});
    if (reply.finish != Finish::kNone) out.push_back({closing(reply)});
    return out;
  }

  void gather(service::Reply reply) override { append(whole_, std::move(reply)); }

  void whole(int index, JsonWriter& json) override {
    json.open_object().key("index").integer(index).key("message").open_object();
    json.key("role").string("assistant");
    if (prompt_.split)
      parts_.write_message(whole_.parts, json);
    else
      json.key("content").string(whole_.text);
    json.key("refusal").null();
    if (call_.return_token_ids) {
      write_ids("prompt", prompt_.tokens, json);
      write_ids("completion", whole_.tokens, json);
    }
    json.close_object().key("logprobs");
    if (call_.logprobs)
      write_chat_logprobs(whole_.logprobs, tokenizer_, names(), json);
    else
      json.null();
    if (call_.request.params.draft_logprobs) write_drafts(whole_, json);
    json.key("finish_reason").json(reason_of(whole_.finish)).key("stop_reason");
    write_stop_reason(whole_, json);
    if (call_.prompt_logprobs) {
      json.key("prompt_logprobs");
      write_prompt_logprobs(whole_.prompt_logprobs, tokenizer_, json);
    }
    if (call_.return_token_ids) {
      json.key("token_ids");
      write_token_ids(whole_.tokens, json);
    }
    json.close_object();
  }

  std::string beside() const override { return prompt_logprobs_beside(whole_); }

 private:
  TokenNames names() const { return call_.tokens_as_ids ? TokenNames::kIds : TokenNames::kText; }

  void write_drafts(const service::Reply& reply, JsonWriter& json) const {
    json.key("draft_logprobs");
    if (reply.draft_logprobs.empty()) return static_cast<void>(json.null());
    write_chat_draft_logprobs(reply.draft_logprobs, tokenizer_, names(), json);
  }

  // vLLM has them beside the choices, which share the prompt.
  std::string prompt_logprobs_beside(const service::Reply& reply) const {
    if (!call_.prompt_logprobs) return {};
    std::string out = R"(,"prompt_logprobs":)";
    JsonWriter json(out);
    write_prompt_logprobs(reply.prompt_logprobs, tokenizer_, json);
    return out;
  }

  // What belongs to tokens, and not to their text, goes with the first delta.
  void split(const service::Reply& reply, bool ids, bool logprobs, std::vector<ChoiceEvent>& out) {
    std::vector<std::string> deltas = parts_.deltas(reply.parts);
    if (deltas.empty() && (ids || logprobs)) deltas.push_back(R"("content":"")");
    for (const std::string& delta : deltas) {
      out.push_back({annotated(reply, delta, ids, logprobs)});
      ids = logprobs = false;
    }
  }

  std::string_view reason_of(Finish finish) const {
    return finish == Finish::kStop && parts_.has_calls() ? R"("tool_calls")"
                                                         : finish_reason(finish);
  }

  static std::string content_of(const std::string& text) {
    std::string out = R"("content":)";
    append_json_string(out, text);
    return out;
  }

  // The common event of a stream: text alone.
  std::string plain(std::string_view text) const {
    std::string out = fmt::format(R"({{"index":{},"delta":{{"content":)", index_);
    append_json_string(out, text);
    return out += R"(},"logprobs":null,"finish_reason":null})";
  }

  std::string annotated(const service::Reply& reply, std::string_view delta, bool ids,
                        bool logprobs) const {
    std::string out;
    JsonWriter json(out);
    json.open_object().key("index").integer(index_).key("delta").open_object();
    json.members(delta);
    if (ids) write_ids("completion", reply.tokens, json);
    json.close_object().key("logprobs");
    if (logprobs)
      write_chat_logprobs(reply.logprobs, tokenizer_, names(), json);
    else
      json.null();
    if (logprobs && call_.request.params.draft_logprobs) write_drafts(reply, json);
    json.key("finish_reason").null();
    if (ids) {
      json.key("token_ids");
      write_token_ids(reply.tokens, json);
    }
    json.close_object();
    return out;
  }

  std::string closing(const service::Reply& reply) const {
    std::string out;
    JsonWriter json(out);
    json.open_object().key("index").integer(index_).key("delta").open_object().close_object();
    json.key("logprobs").null().key("finish_reason").json(reason_of(reply.finish));
    json.key("stop_reason");
    write_stop_reason(reply, json);
    json.close_object();
    return out;
  }

  // Writes ids and, under FastDeploy's names, the text that they stand for.
  void write_ids(const std::string& which, const std::vector<Token>& tokens,
                 JsonWriter& json) const {
    json.key(which + "_token_ids");
    write_token_ids(tokens, json);
    json.key(which + "_tokens").string(tokenizer_.decode(tokens, /*skip_special=*/false));
  }

  ChoiceEvent opening(const service::Reply& reply) const {
    ChoiceEvent event;
    JsonWriter json(event.choice);
    json.open_object().key("index").integer(index_).key("delta").open_object();
    json.key("role").string("assistant").key("content").string("");
    if (call_.return_token_ids) {
      write_ids("prompt", prompt_.tokens, json);
      event.beside = prompt_ids_beside(prompt_);
    }
    json.close_object().key("logprobs").null().key("finish_reason").null();
    if (call_.prompt_logprobs) {
      json.key("prompt_logprobs");
      write_prompt_logprobs(reply.prompt_logprobs, tokenizer_, json);
    }
    json.close_object();
    if (index_ == 0) event.beside += prompt_logprobs_beside(reply);
    return event;
  }

  const int index_;
  const OpenAiCall& call_;
  const PromptInfo& prompt_;
  const text::Tokenizer& tokenizer_;
  ChatParts parts_;
  bool opened_ = false;
  service::Reply whole_;
};

class ChatShape : public OpenAiShape {
  const char* id_prefix() const override { return "chatcmpl-"; }
  const char* object() const override { return "chat.completion"; }
  const char* chunk_object() const override { return "chat.completion.chunk"; }
  std::string beside(const OpenAiCall& call,
                     const std::vector<PromptInfo>& prompts) const override {
    return call.return_token_ids ? prompt_ids_beside(prompts.front()) : std::string();
  }
  std::unique_ptr<ChoiceWriter> writer(int index, const WriterContext& context) const override {
    return std::make_unique<ChatWriter>(index, context);
  }
};

}  // namespace

const OpenAiShape& chat_shape() {
  static const ChatShape shape;
  return shape;
}

}  // namespace skiff::openai
