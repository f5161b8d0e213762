// serve/service/prepare.h -- checks a Request and turns it into tokens and resolved parameters.
// These are pure functions, so every refusal is tested without an engine.
#pragma once
#include "serve/service/answer_split.h"
#include "serve/service/constraint_compiler.h"
#include "serve/service/service.h"
#include "serve/service/service_config.h"
#include "serve/service/special_text.h"

namespace skiff::service {

struct PrepareContext {
  const ServiceConfig& config;
  const text::Tokenizer& tokenizer;
  const text::ChatTemplate* chat_template = nullptr;  // may be null
  size_t longest_piece = 1;                           // bytes of the longest token
  const SpecialText* special = nullptr;               // null: messages may spell special tokens
  const AnswerSplit* split = nullptr;                 // null: replies are not split
  ConstraintCompiler* constraints = nullptr;          // null: constraints are refused
};

// Does what Service::prepare_all does, except that params.seed stays as given.
Result<std::vector<Prepared>> prepare_requests(Request common, std::vector<PromptInput> prompts,
                                               const PrepareContext& context);
// Prepares one prompt, request.input, as prepare_requests() does several.
Result<Prepared> prepare_request(Request request, const PrepareContext& context);

// Does what Service::tokenize does.
Result<std::vector<Token>> prompt_tokens(const Request& request, const PrepareContext& context);

size_t longest_piece(const text::Tokenizer& tokenizer);

}  // namespace skiff::service
