// serve/openai/params.h -- the body of a chat or completions request to a Request. The fields are
// in the tables of openai_fields.h; null means absent, and unknown fields are ignored by name.
#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "serve/service/sampling_defaults.h"
#include "serve/service/service.h"

namespace skiff {

enum class Endpoint { kChat, kCompletions };

// What one request body asks for.
struct OpenAiCall {
  std::string model;
  Request request;                                // everything but `input`, which prompts has
  std::vector<decltype(Request::input)> prompts;  // chat: one; not empty
  // Sequences to draw for each prompt, >= request.n: the n of the highest mean log-probability
  // are the choices. Equal to n in a stream.
  int best_of = 0;
  bool stream = false;
  bool include_usage = false, continuous_usage = false;
  bool has_stream_options = false;
  bool logprobs = false;        // chat
  bool echo = false;            // completions
  bool discard_output = false;  // max_tokens 0 with echo: the prompt alone
  bool return_token_ids = false;
  int max_streaming_tokens = 1;  // >= 1: tokens that one event of a stream may gather
  bool obfuscate = false;        // pad events, so that their sizes do not tell what is in them
  bool prompt_logprobs = false;  // asked for by name, not only through echo
  std::string request_id;        // the client's name for it; may be empty
  // Fields that the API does not have, as the body names them (the first few, shortened).
  std::vector<std::string> unknown_fields;

  // While parsing; folded into the above.
  Conversation conversation;
  std::vector<std::vector<Token>> prompt_token_ids;
  OrderedJson documents;
  std::string reasoning_effort;
  std::optional<bool> add_generation_prompt;
  bool raw_chat = false;  // disable_chat_template
  bool has_max_completion_tokens = false, use_tools = true;
  int top_logprobs = kNoLogprobs;
};

// Error::field is the name of the offending field; Code::kNotFound is a field that must be there.
Result<OpenAiCall> parse_openai_call(const OrderedJson& body, Endpoint endpoint,
                                     const SamplingDefaults& defaults);

}  // namespace skiff
