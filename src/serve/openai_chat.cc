// The JSON of POST /v1/chat/completions.
#include "base/json_text.h"
#include "serve/openai_error.h"
#include "serve/openai_logprobs.h"
#include "serve/openai_shape.h"

namespace skiff {
namespace {

class ChatWriter : public ChoiceWriter {
 public:
  ChatWriter(int index, const OpenAiCall& call, const PromptInfo& prompt,
             const Tokenizer& tokenizer)
      : index_(index), call_(call), prompt_(prompt), tokenizer_(tokenizer) {}

  std::vector<std::string> stream(Reply reply) override {
    std::vector<std::string> out;
    if (!std::exchange(opened_, true)) out.push_back(json_text(opening(reply)));
    const bool ids = call_.return_token_ids && !reply.tokens.empty();
    const bool logprobs = call_.logprobs && !reply.logprobs.empty();
    if (ids || logprobs)
      out.push_back(json_text(annotated(reply, ids, logprobs)));
    else if (!reply.text.empty())
      out.push_back(plain(reply.text));
    if (reply.finish != Finish::kNone) {
      Json end = chunk(Json::object(), finish_reason(reply.finish));
      end["stop_reason"] = stop_reason(reply);
      out.push_back(json_text(end));
    }
    return out;
  }

  void gather(Reply reply) override { append(whole_, std::move(reply)); }

  Json whole() override {
    Json message{{"role", "assistant"}, {"content", whole_.text}, {"refusal", nullptr}};
    if (call_.return_token_ids) {
      add_ids(message, "prompt", prompt_.tokens);
      add_ids(message, "completion", whole_.tokens);
    }
    Json choice{{"index", index_},
                {"message", std::move(message)},
                {"logprobs", nullptr},
                {"finish_reason", finish_reason(whole_.finish)},
                {"stop_reason", stop_reason(whole_)}};
    if (call_.logprobs) choice["logprobs"] = chat_logprobs(whole_.logprobs, tokenizer_);
    if (call_.prompt_logprobs)
      choice["prompt_logprobs"] = prompt_logprobs_json(whole_.prompt_logprobs, tokenizer_);
    return choice;
  }

 private:
  Json chunk(Json delta, Json finish) const {
    return {{"index", index_},
            {"delta", std::move(delta)},
            {"logprobs", nullptr},
            {"finish_reason", std::move(finish)}};
  }

  // Nearly all events of nearly all streams, so written without a tree.
  std::string plain(std::string_view text) const {
    std::string out = fmt::format(R"({{"index":{},"delta":{{"content":)", index_);
    append_json_string(out, text);
    return out += R"(},"logprobs":null,"finish_reason":null})";
  }

  Json annotated(const Reply& reply, bool ids, bool logprobs) const {
    Json delta{{"content", reply.text}};
    if (ids) add_ids(delta, "completion", reply.tokens);
    Json choice = chunk(std::move(delta), nullptr);
    if (logprobs) choice["logprobs"] = chat_logprobs(reply.logprobs, tokenizer_);
    return choice;
  }

  // FastDeploy's names: ids, and beside them the text that they stand for.
  void add_ids(Json& message, const std::string& which, const std::vector<Token>& tokens) const {
    message[which + "_token_ids"] = tokens;
    message[which + "_tokens"] = tokenizer_.decode(tokens, /*skip_special=*/false);
  }

  Json opening(const Reply& reply) const {
    Json delta{{"role", "assistant"}, {"content", ""}};
    if (call_.return_token_ids) add_ids(delta, "prompt", prompt_.tokens);
    Json choice = chunk(std::move(delta), nullptr);
    if (call_.prompt_logprobs)
      choice["prompt_logprobs"] = prompt_logprobs_json(reply.prompt_logprobs, tokenizer_);
    return choice;
  }

  const int index_;
  const OpenAiCall& call_;
  const PromptInfo& prompt_;
  const Tokenizer& tokenizer_;
  bool opened_ = false;
  Reply whole_;
};

class ChatShape : public OpenAiShape {
  const char* id_prefix() const override { return "chatcmpl-"; }
  const char* object() const override { return "chat.completion"; }
  const char* chunk_object() const override { return "chat.completion.chunk"; }
  std::unique_ptr<ChoiceWriter> writer(int index, const OpenAiCall& call, const PromptInfo& prompt,
                                       const Tokenizer& tokenizer) const override {
    return std::make_unique<ChatWriter>(index, call, prompt, tokenizer);
  }
};

}  // namespace

const OpenAiShape& chat_shape() {
  static const ChatShape shape;
  return shape;
}

}  // namespace skiff
