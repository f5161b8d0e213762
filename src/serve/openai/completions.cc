// The JSON of POST /v1/completions.
#include "base/json_text.h"
#include "serve/openai/logprobs.h"
#include "serve/openai/shape.h"

namespace skiff::openai {
namespace {

class CompletionWriter : public ChoiceWriter {
 public:
  CompletionWriter(int index, const OpenAiCall& call, const PromptInfo& prompt,
                   const text::Tokenizer& tokenizer)
      : index_(index),
        call_(call),
        prompt_(prompt),
        tokenizer_(tokenizer),
        logprobs_(tokenizer, call.tokens_as_ids ? TokenNames::kIds : TokenNames::kText,
                  call.request.params.logprobs > 0),
        drafts_(logprobs_) {}

  std::vector<ChoiceEvent> stream(service::Reply reply) override {
    const bool first = !std::exchange(opened_, true);
    if (is_plain(reply, first)) {
      if (reply.text.empty()) return {};
      return {{plain(reply.text)}};
    }
    add_logprobs(reply, first);
    if (is_empty(reply, first)) return {};
    ChoiceEvent event;
    JsonWriter json(event.choice);
    write(reply, index_, first, json);
    return {std::move(event)};
  }

  void gather(service::Reply reply) override { append(whole_, std::move(reply)); }

  void whole(int index, JsonWriter& json) override {
    add_logprobs(whole_, /*first=*/true);
    write(whole_, index, /*first=*/true, json);
  }

 private:
  bool wants_logprobs() const { return call_.request.params.logprobs != kNoLogprobs; }

  bool is_plain(const service::Reply& reply, bool first) const {
    return !first && reply.finish == Finish::kNone && !call_.return_token_ids &&
           !call_.discard_output && !wants_logprobs();
  }

  // Returns whether the piece has nothing for the client, so that no event is due.
  bool is_empty(const service::Reply& reply, bool first) const {
    const bool text = (first && call_.echo && !prompt_.echo.empty()) ||
                      (!call_.discard_output && !reply.text.empty());
    const bool ids = call_.return_token_ids && (first || !reply.tokens.empty());
    return reply.finish == Finish::kNone && !text && logprobs_.empty() && !ids &&
           !(first && call_.prompt_logprobs);
  }

  // The common event of a stream: text alone.
  std::string plain(std::string_view text) const {
    std::string out = fmt::format(R"({{"index":{},"text":)", index_);
    append_json_string(out, text);
    return out += R"(,"logprobs":null,"finish_reason":null})";
  }

  // Writes ids and, under FastDeploy's names, the text that they stand for.
  void write_ids(const service::Reply& reply, bool first, JsonWriter& json) const {
    const auto put = [&](const std::string& which, const std::vector<Token>& tokens) {
      json.key(which + "_token_ids");
      write_token_ids(tokens, json);
      json.key(which + "_tokens").string(tokenizer_.decode(tokens, /*skip_special=*/false));
    };
    const std::vector<Token> none;
    const std::vector<Token>& ids = call_.discard_output ? none : reply.tokens;
    if (first) put("prompt", prompt_.tokens);
    put("completion", ids);
    json.key("token_ids");
    write_token_ids(ids, json);
  }

  void write(const service::Reply& reply, int index, bool first, JsonWriter& json) {
    std::string text = first && call_.echo ? prompt_.echo : std::string();
    if (!call_.discard_output) text += reply.text;
    json.open_object().key("index").integer(index).key("text").string(text).key("logprobs");
    if (wants_logprobs() && (!logprobs_.empty() || (first && reply.finish != Finish::kNone)))
      logprobs_.write(json);
    else
      json.null();
    if (call_.request.params.draft_logprobs) write_drafts(reply, json);
    json.key("finish_reason").json(finish_reason(reply.finish));
    if (reply.finish != Finish::kNone) {
      json.key("stop_reason");
      write_stop_reason(reply, json);
    }
    if (first && call_.prompt_logprobs) {
      json.key("prompt_logprobs");
      write_prompt_logprobs(reply.prompt_logprobs, tokenizer_, json);
    }
    if (call_.return_token_ids) write_ids(reply, first, json);
    json.close_object();
  }

  // The prompt's tokens are in logprobs, too, where it is echoed.
  void write_drafts(const service::Reply& reply, JsonWriter& json) {
    json.key("draft_logprobs");
    if (reply.draft_logprobs.empty()) return static_cast<void>(json.null());
    for (const DraftLogprobs& one : reply.draft_logprobs) drafts_.add(one.logprobs);
    const size_t first = call_.echo ? prompt_.tokens.size() : 0;
    drafts_.write(json, positions_of(reply.draft_logprobs, static_cast<int>(first)));
  }

  // Borrows from the reply until write().
  void add_logprobs(const service::Reply& reply, bool first) {
    if (!wants_logprobs()) return;
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
  const text::Tokenizer& tokenizer_;
  CompletionLogprobs logprobs_, drafts_;
  bool opened_ = false;
  service::Reply whole_;
};

class CompletionsShape : public OpenAiShape {
  const char* id_prefix() const override { return "cmpl-"; }
  const char* object() const override { return "text_completion"; }
  const char* chunk_object() const override { return "text_completion"; }
  std::unique_ptr<ChoiceWriter> writer(int index, const WriterContext& context) const override {
    return std::make_unique<CompletionWriter>(index, context.call, context.prompt,
                                              context.tokenizer);
  }
};

}  // namespace

const OpenAiShape& completions_shape() {
  static const CompletionsShape shape;
  return shape;
}

}  // namespace skiff::openai
