// Any JSON as the body of a message is translated or refused, without a crash.
#include "serve/messages/to_chat.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = parse_ordered_json(text, {.max_bytes = 1 << 20});
  if (!body || !body->is_object()) return 0;
  const auto chat = messages::to_chat(*body, /*counts=*/true);
  SKIFF_CHECK(!chat || (chat->contains("messages") && !chat->at("messages").empty()));
  SKIFF_CHECK(chat || !chat.error().field.empty());
  return 0;
}
