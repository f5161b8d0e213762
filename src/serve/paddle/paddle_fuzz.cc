// Any JSON as a request of PaddleNLP's protocol is read or refused without a crash, and what is
// read keeps the bounds that the service relies on.
#include "base/check.h"
#include "serve/paddle/request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = parse_ordered_json(text, {.max_bytes = 1 << 20});
  if (!body) return 0;
  static_cast<void>(paddle::is_paddle_request(*body));
  for (const bool chat_template : {true, false}) {
    const auto call = paddle::parse_paddle_call(
        *body, "id", {.max_dec_len = 100, .chat_template = chat_template});
    if (!call) {
      SKIFF_CHECK(!call.error().what.empty());
      continue;
    }
    const service::Request& request = call->request;
    SKIFF_CHECK(!call->req_id.empty() && call->req_id.size() <= 256);
    SKIFF_CHECK(request.stop.max_tokens >= 1 && request.stop.max_tokens <= 100, "{}",
                request.stop.max_tokens);
    SKIFF_CHECK(request.params.temperature >= 0 && request.params.top_p <= 1);
    SKIFF_CHECK(request.stop.tokens.size() <= 1 && call->token_seconds > 0);
  }
  return 0;
}
