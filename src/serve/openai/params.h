// serve/openai/params.h -- the body of a chat or completions request becomes an OpenAiCall. The
// fields are in the tables of serve/openai/fields.h; null means absent, and unknown fields are
// collected by name.
#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "serve/service/sampling_defaults.h"
#include "serve/service/service.h"

namespace skiff::openai {

enum class Endpoint { kChat, kCompletions };

// A parsed request body.
struct OpenAiCall {
  std::string model;
  service::Request request;  // `input` is not used: the call may have several prompts
  std::vector<service::PromptInput> prompts;  // not empty; a chat has one
  // Sequences that are sampled for each prompt, >= request.n: the n with the highest mean
  // log-probability become the choices. Equal to n in a stream.
  int best_of = 0;
  bool include_reasoning = true;  // chat: reasoning is part of the reply
  bool stream = false;
  bool include_usage = false, continuous_usage = false;
  bool logprobs = false;        // chat
  bool echo = false;            // completions
  bool discard_output = false;  // max_tokens is 0, with echo: only the prompt is returned
  bool return_token_ids = false;
  bool tokens_as_ids = false;    // log-probabilities name tokens "token_id:N", not by their text
  int max_streaming_tokens = 1;  // tokens that one event of a stream may hold; >= 1
  bool obfuscate = false;        // pad events, so that their sizes do not reveal their tokens
  bool prompt_logprobs = false;  // the field was given; echo alone does not set it
  std::string request_id;        // the client's name for the request; may be empty
  // Names of fields that the API does not have (the first few, shortened).
  std::vector<std::string> unknown_fields;
};

// Error::field is the name of the offending field; Code::kNotFound means that a required field is
// missing.
Result<OpenAiCall> parse_openai_call(const OrderedJson& body, Endpoint endpoint,
                                     const service::SamplingDefaults& defaults);

}  // namespace skiff::openai
