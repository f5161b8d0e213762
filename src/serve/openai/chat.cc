// The JSON of POST /v1/chat/completions.
#include "base/json_text.h"
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
  ChatWriter(int index, const OpenAiCall& call, const PromptInfo& prompt,
             const text::Tokenizer& tokenizer)
      : index_(index), call_(call), prompt_(prompt), tokenizer_(tokenizer) {}

  std::vector<ChoiceEvent> stream(service::Reply reply) override {
    std::vector<ChoiceEvent> out;
    if (!std::exchange(opened_, true)) out.push_back(opening(reply));
    const bool ids = call_.return_token_ids && !reply.tokens.empty();
    const bool logprobs = call_.logprobs && !reply.logprobs.empty();
    if (ids || logprobs)
      out.push_back({annotated(reply, ids, logprobs)});
    else if (!reply.text.empty())
      out.push_back({plain(reply.text)});
    if (reply.finish != Finish::kNone) out.push_back({closing(reply)});
    return out;
  }

  void gather(service::Reply reply) override { append(whole_, std::move(reply)); }

  void whole(int index, JsonWriter& json) override {
    json.open_object().key("index").integer(index).key("message").open_object();
    json.key("role").string("assistant").key("content").string(whole_.text).key("refusal").null();
    if (call_.return_token_ids) {
      write_ids("prompt", prompt_.tokens, json);
      write_ids("completion", whole_.tokens, json);
    }
    json.close_object().key("logprobs");
    if (call_.logprobs)
      write_chat_logprobs(whole_.logprobs, tokenizer_, json);
    else
      json.null();
    json.key("finish_reason").json(finish_reason(whole_.finish)).key("stop_reason");
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

 private:
  // The common event of a stream: text alone.
  std::string plain(std::string_view text) const {
    std::string out = fmt::format(R"({{"index":{},"delta":{{"content":)", index_);
    append_json_string(out, text);
    return out += R"(},"logprobs":null,"finish_reason":null})";
  }

  std::string annotated(const service::Reply& reply, bool ids, bool logprobs) const {
    std::string out;
    JsonWriter json(out);
    json.open_object().key("index").integer(index_).key("delta").open_object();
    json.key("content").string(reply.text);
    if (ids) write_ids("completion", reply.tokens, json);
    json.close_object().key("logprobs");
    if (logprobs)
      write_chat_logprobs(reply.logprobs, tokenizer_, json);
    else
      json.null();
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
    json.key("logprobs").null().key("finish_reason").json(finish_reason(reply.finish));
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
    return event;
  }

  const int index_;
  const OpenAiCall& call_;
  const PromptInfo& prompt_;
  const text::Tokenizer& tokenizer_;
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
  std::unique_ptr<ChoiceWriter> writer(int index, const OpenAiCall& call, const PromptInfo& prompt,
                                       const text::Tokenizer& tokenizer) const override {
    return std::make_unique<ChatWriter>(index, call, prompt, tokenizer);
  }
};

}  // namespace

const OpenAiShape& chat_shape() {
  static const ChatShape shape;
  return shape;
}

}  // namespace skiff::openai
