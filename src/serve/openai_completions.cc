// The JSON of POST /v1/completions.
#include "base/json_text.h"
#include "serve/openai_error.h"
#include "serve/openai_logprobs.h"
#include "serve/openai_shape.h"

namespace skiff {
namespace {

class CompletionWriter : public ChoiceWriter {
 public:
  CompletionWriter(int index, const OpenAiCall& call, const PromptInfo& prompt,
                   const Tokenizer& tokenizer)
      : index_(index),
        call_(call),
        prompt_(prompt),
        tokenizer_(tokenizer),
        logprobs_(tokenizer, call.request.params.logprobs > 0) {}

  std::vector<std::string> stream(Reply reply) override {
    const bool first = !std::exchange(opened_, true);
    if (is_plain(reply, first)) {
      if (reply.text.empty()) return {};
      return {plain(reply.text)};
    }
    const bool ids = call_.return_token_ids && (first || !reply.tokens.empty());
    const bool prompt_logprobs = first && call_.prompt_logprobs;
    Json choice = write(reply, first);
    if (reply.finish == Finish::kNone && choice["text"].get_ref<const std::string&>().empty() &&
        choice["logprobs"].is_null() && !ids && !prompt_logprobs)
      return {};
    return {json_text(choice)};
  }

  void gather(Reply reply) override { append(whole_, std::move(reply)); }

  Json whole() override { return write(whole_, /*first=*/true); }

 private:
  bool is_plain(const Reply& reply, bool first) const {
    return !first && reply.finish == Finish::kNone && !call_.return_token_ids &&
           !call_.discard_output && call_.request.params.logprobs == kNoLogprobs;
  }

  // Nearly all events of nearly all streams, so written without a tree.
  std::string plain(std::string_view text) const {
    std::string out = fmt::format(R"({{"index":{},"text":)", index_);
    append_json_string(out, text);
    return out += R"(,"logprobs":null,"finish_reason":null})";
  }

  // FastDeploy's names: ids, and beside them the text that they stand for.
  void add_ids(Json& choice, const std::string& which, const std::vector<Token>& tokens) const {
    choice[which + "_token_ids"] = tokens;
    choice[which + "_tokens"] = tokenizer_.decode(tokens, /*skip_special=*/false);
  }

  Json write(const Reply& reply, bool first) {
    Json choice{{"index", index_},
                {"text", first && call_.echo ? prompt_.echo : std::string()},
                {"logprobs", nullptr},
                {"finish_reason", finish_reason(reply.finish)}};
    if (reply.finish != Finish::kNone) choice["stop_reason"] = stop_reason(reply);
    if (!call_.discard_output) choice["text"].get_ref<std::string&>() += reply.text;
    if (call_.request.params.logprobs != kNoLogprobs) {
      add_logprobs(reply, first);
      if (!logprobs_.empty() || (first && reply.finish != Finish::kNone))
        choice["logprobs"] = logprobs_.take();
    }
    if (first && call_.prompt_logprobs)
      choice["prompt_logprobs"] = prompt_logprobs_json(reply.prompt_logprobs, tokenizer_);
    if (call_.return_token_ids) {
      if (first) add_ids(choice, "prompt", prompt_.tokens);
      add_ids(choice, "completion", call_.discard_output ? std::vector<Token>() : reply.tokens);
    }
    return choice;
  }

  void add_logprobs(const Reply& reply, bool first) {
    if (first && call_.echo) {
      logprobs_.add_unpredicted(prompt_.tokens.front());
      for (const PositionLogprobs& position : reply.prompt_logprobs) logprobs_.add(position);
    }
    if (call_.discard_output) return;
    for (const PositionLogprobs& position : reply.logprobs) logprobs_.add(position);
  }

  const int index_;
  const OpenAiCall& call_;
  const PromptInfo& prompt_;
  const Tokenizer& tokenizer_;
  CompletionLogprobs logprobs_;
  bool opened_ = false;
  Reply whole_;
};

class CompletionsShape : public OpenAiShape {
  const char* id_prefix() const override { return "cmpl-"; }
  const char* object() const override { return "text_completion"; }
  const char* chunk_object() const override { return "text_completion"; }
  std::unique_ptr<ChoiceWriter> writer(int index, const OpenAiCall& call, const PromptInfo& prompt,
                                       const Tokenizer& tokenizer) const override {
    return std::make_unique<CompletionWriter>(index, call, prompt, tokenizer);
  }
};

}  // namespace

const OpenAiShape& completions_shape() {
  static const CompletionsShape shape;
  return shape;
}

}  // namespace skiff
