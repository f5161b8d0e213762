// The JSON of POST /v1/chat/completions.
#include "serve/openai_logprobs.h"
#include "serve/openai_shape.h"

namespace skiff {
namespace {

class ChatWriter : public ChoiceWriter {
 public:
  ChatWriter(int index, const OpenAiCall& call, const PromptInfo& prompt,
             const Tokenizer& tokenizer)
      : index_(index), call_(call), prompt_(prompt), tokenizer_(tokenizer) {}

  std::vector<Json> stream(Reply reply) override {
    std::vector<Json> out;
    if (!std::exchange(opened_, true)) out.push_back(opening(reply));
    const bool ids = call_.return_token_ids && !reply.tokens.empty();
    const bool logprobs = call_.logprobs && !reply.logprobs.empty();
    if (!reply.text.empty() || ids || logprobs) {
      Json delta{{"content", reply.text}};
      if (ids) delta["completion_token_ids"] = reply.tokens;
      Json choice = chunk(std::move(delta), nullptr);
      if (logprobs) choice["logprobs"] = chat_logprobs(reply.logprobs, tokenizer_);
      out.push_back(std::move(choice));
    }
    if (reply.finish != Finish::kNone) {
      out.push_back(chunk(Json::object(), finish_reason(reply.finish)));
      out.back()["stop_reason"] = stop_reason(reply);
    }
    return out;
  }

  void gather(Reply reply) override { append(whole_, std::move(reply)); }

  Json whole() override {
    Json message{{"role", "assistant"}, {"content", whole_.text}, {"refusal", nullptr}};
    if (call_.return_token_ids) {
      message["prompt_token_ids"] = prompt_.tokens;
      message["completion_token_ids"] = whole_.tokens;
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

  Json opening(const Reply& reply) const {
    Json delta{{"role", "assistant"}, {"content", ""}};
    if (call_.return_token_ids) delta["prompt_token_ids"] = prompt_.tokens;
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
