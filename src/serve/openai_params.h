// serve/openai_params.h -- the body of a chat or completions request to a Request: one table of
// fields, with types and ranges. Unknown fields are ignored, null means absent.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "serve/server.h"
#include "serve/service.h"

namespace skiff {

enum class Endpoint { kChat, kCompletions };

// What one request body asks for.
struct OpenAiCall {
  std::string model;
  Request request;                                // everything but `input`, which prompts has
  std::vector<decltype(Request::input)> prompts;  // chat: one
  bool stream = false;
  bool include_usage = false, continuous_usage = false;
  bool has_stream_options = false;
  bool logprobs = false;        // chat
  bool echo = false;            // completions
  bool discard_output = false;  // max_tokens 0 with echo: the prompt alone
  bool return_token_ids = false;
  int max_streaming_tokens = 1;  // tokens that one event of a stream may gather
  bool obfuscate = false;        // pad events, so that their sizes do not tell what is in them
  bool prompt_logprobs = false;  // asked for by name, not only through echo
  std::string request_id;        // the client's name for it; may be empty

  // While parsing; folded into the above.
  Conversation conversation;
  std::vector<Token> prompt_token_ids;
  bool raw_chat = false;  // disable_chat_template
  bool has_max_completion_tokens = false, use_tools = true;
  int top_logprobs = kNoLogprobs, best_of = 0;
};

// Error::field is the name of the offending field.
Result<OpenAiCall> parse_openai_call(const OrderedJson& body, Endpoint endpoint,
                                     const SamplingDefaults& defaults);

}  // namespace skiff
