#include "serve/pooling/prompts.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace skiff::pooling {
namespace {

using Tokens = std::vector<Token>;

// The prompt that Qwen3-Reranker was trained with (its model card).
constexpr std::string_view kJudgeBegin =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n";
constexpr std::string_view kJudgeEnd = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
constexpr std::string_view kJudgeInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";

size_t most_tokens(const PoolingCall& call, const service::Service& service) {
  const auto context = static_cast<size_t>(service.max_model_len());
  const int64_t most = call.truncate.value_or(-1);
  return most < 0 ? context : std::min(context, static_cast<size_t>(most));
}

std::optional<Error> check_text(std::string_view text, const service::Service& service) {
  const size_t most = service::Service::max_text(service.max_model_len());
  if (text.size() <= most) return std::nullopt;
  return Error{Code::kInvalid,
               fmt::format("a text has {} bytes; at most {} are tokenized", text.size(), most),
               "input_length"};
}

Result<service::PromptInput> cut_input(service::PromptInput input, const PoolingCall& call,
                                       const service::Service& service) {
  const size_t most = most_tokens(call, service);
  if (const auto* text = std::get_if<std::string>(&input)) {
    if (auto error = check_text(*text, service)) return *error;
    return service::PromptInput(
        cut_text(service.tokenizer(), *text, call.request.add_special, most));
  }
  Tokens tokens;
  if (auto* given = std::get_if<Tokens>(&input)) {
    tokens = std::move(*given);
  } else {
    service::Request request = call.request;
    request.input = std::move(input);
    auto made = service.tokenize(request);
    if (!made) return made.error();
    tokens = std::move(*made);
  }
  if (tokens.size() > most) tokens.resize(most);
  return service::PromptInput(std::move(tokens));
}

// Joins pairs of texts to prompts. A document is cut so that the whole prompt fits; what stands
// around it never is.
class PairWriter {
 public:
  PairWriter(const PoolingCall& call, const service::PooledModel& model,
             const service::Service& service)
      : call_(call), judges_(model.judges_pairs), service_(service) {
    if (!judges_) return;
    begin_ = encode(kJudgeBegin, true);
    end_ = encode(kJudgeEnd, true);
  }

  // A pair that is too long is refused here, before the other pairs of the call are written: they
  // share its query, and may be thousands.
  Result<Tokens> write(const std::string& query, const std::string& document) {
    for (const std::string* text : {&query, &document})
      if (auto error = check_text(*text, service_)) return *error;
    auto tokens = judges_ ? judged(query, document) : joined(query, document);
    const size_t most = most_tokens(call_, service_);
    if (!tokens || tokens->size() <= most) return tokens;
    return Error{Code::kInvalid,
                 fmt::format("This model's maximum context length is {} tokens. However, a pair of "
                             "texts has {} tokens. Please shorten it, or let the server cut it "
                             "with truncate_prompt_tokens: -1.",
                             most, tokens->size()),
                 "input_length"};
  }

 private:
  // Texts of clients cannot spell special tokens, which would end the question.
  Tokens encode(std::string_view text, bool parse_special) const {
    return service_.tokenizer().encode(text,
                                       {.add_special = false, .parse_special = parse_special});
  }

  Result<Tokens> judged(const std::string& query, const std::string& document) const {
    const std::string_view task =
        call_.instruction.empty() ? kJudgeInstruction : std::string_view(call_.instruction);
    const std::string body =
        fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>: {}", task, query, document);
    Tokens middle = encode(body, false);
    const size_t most = most_tokens(call_, service_), frame = begin_.size() + end_.size();
    if (call_.truncate && frame + middle.size() > most) {
      const size_t head =
          encode(fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>:", task, query), false)
              .size();
      if (frame + head >= most)
        return Error{Code::kInvalid,
                     fmt::format("the query leaves no room for a document: with the model's "
                                 "question it has {} tokens, and the prompt at most {}",
                                 frame + head, most),
                     "input_length"};
      middle.resize(most - frame);
    }
    Tokens all = begin_;
    all.insert(all.end(), middle.begin(), middle.end());
    all.insert(all.end(), end_.begin(), end_.end());
    return all;
  }

  Result<Tokens> joined(const std::string& query, const std::string& document) {
    Tokens all = tokens_of(query);
    const Tokens rest = encode(document, false);
    size_t kept = rest.size();
    if (call_.truncate) kept = std::min(kept, most_tokens(call_, service_) - all.size());
    all.insert(all.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(kept));
    return all;
  }

  // The tokens of a query, cut to what a prompt may have. Pairs one after the other may share their
  // query, which is then tokenized once.
  const Tokens& tokens_of(const std::string& query) {
    if (&query == known_) return query_;
    query_ = service_.tokenizer().encode(
        query, {.add_special = call_.request.add_special, .parse_special = false});
    const size_t most = most_tokens(call_, service_);
    if (call_.truncate && query_.size() > most) query_.resize(most);
    known_ = &query;
    return query_;
  }

  const PoolingCall& call_;
  const bool judges_;
  const service::Service& service_;
  Tokens begin_, end_;
  const std::string* known_ = nullptr;  // the query whose tokens query_ holds
  Tokens query_;
};

}  // namespace

std::vector<Token> cut_text(const text::Tokenizer& tokenizer, std::string_view text,
                            bool add_special, size_t most) {
  Tokens whole = tokenizer.encode(text, {.add_special = add_special, .parse_special = true});
  if (whole.size() <= most) return whole;
  if (!add_special) {
    whole.resize(most);
    return whole;
  }
  const Tokens bare = tokenizer.encode(text, {.add_special = false, .parse_special = true});
  const auto begin = std::ranges::search(whole, bare).begin();
  const size_t frame = whole.size() - bare.size();
  if (begin == whole.end() || frame >= most) {
    whole.resize(most);
    return whole;
  }
  const auto first = begin + static_cast<std::ptrdiff_t>(most - frame);
  whole.erase(first, begin + std::ssize(bare));
  return whole;
}

Result<std::vector<service::PromptInput>> prompts_of(PoolingCall& call,
                                                     const service::PooledModel& model,
                                                     const service::Service& service) {
  if (!call.documents.empty() && model.task != service::PooledModel::kEmbed) {
    PairWriter writer(call, model, service);
    std::vector<service::PromptInput> prompts;
    for (size_t i = 0; i < call.documents.size(); ++i) {
      const std::string& query = call.queries[call.queries.size() > 1 ? i : 0];
      auto prompt = writer.write(query, call.documents[i]);
      if (!prompt) return prompt.error();
      prompts.emplace_back(std::move(*prompt));
    }
    return prompts;
  }
  std::vector<service::PromptInput> prompts = std::exchange(call.inputs, {});
  for (std::string& query : call.queries) prompts.emplace_back(std::move(query));
  for (const std::string& document : call.documents) prompts.emplace_back(document);
  if (!call.truncate) return prompts;
  for (service::PromptInput& prompt : prompts) {
    auto cut = cut_input(std::move(prompt), call, service);
    if (!cut) return cut.error();
    prompt = std::move(*cut);
  }
  return prompts;
}

}  // namespace skiff::pooling
