// Any bytes as the body of a request are parsed and prepared without a crash, and prepared requests
// keep the limits that the engine relies on.
#include "serve/openai/params.h"
#include "serve/service/engine_testing.h"
#include "serve/service/prepare.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff;
  static const service::ServiceConfig config = service::echo_config();
  static const service::ByteTokenizer tokenizer;
  static const service::PlainTemplate chat_template;
  static const service::SpecialText special(tokenizer);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = parse_ordered_json(text, {.max_bytes = 1 << 20, .wide = "logit_bias"});
  if (!body) return 0;
  for (openai::Endpoint endpoint : {openai::Endpoint::kChat, openai::Endpoint::kCompletions}) {
    const auto call = openai::parse_openai_call(*body, endpoint, {});
    if (!call) continue;
    for (const auto& prompt : call->prompts) {
      service::Request request = call->request;
      request.input = prompt;
      const auto prepared =
          service::prepare_request(std::move(request), {.config = config,
                                                        .tokenizer = tokenizer,
                                                        .chat_template = &chat_template,
                                                        .longest_piece = 4,
                                                        .special = &special});
      if (!prepared) continue;
      const int prompt_tokens = static_cast<int>(prepared->prompt.size());
      SKIFF_CHECK(prompt_tokens > 0 && prepared->stop.max_tokens > 0 &&
                      prompt_tokens + prepared->stop.max_tokens <= config.max_model_len,
                  "{} prompt tokens, {} to come", prompt_tokens, prepared->stop.max_tokens);
      SKIFF_CHECK(prepared->n >= 1 && prepared->n <= service::Service::kMaxN, "n {}", prepared->n);
    }
  }
  return 0;
}
