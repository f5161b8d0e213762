// Any JSON as the body of a chat, a prompt or texts to embed is read or refused, without a crash.
#include "serve/ollama/embed.h"
#include "serve/ollama/to_chat.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = parse_ordered_json(text, {.max_bytes = 1 << 20});
  if (!body || !(*body).is_object()) return 0;
  for (const auto endpoint : {ollama::Endpoint::kChat, ollama::Endpoint::kGenerate}) {
    ollama::only_loads(*body, endpoint);
    const auto chat = ollama::to_chat(*body, endpoint);
    SKIFF_CHECK(!chat || (*chat).contains("messages"));
    SKIFF_CHECK(chat || !chat.error().field.empty());
  }
  for (const auto* kind : {&ollama::embed_kind(), &ollama::embedding_kind()}) {
    const auto call = pooling::parse_call(*body, *kind);
    SKIFF_CHECK(!call || !call->inputs.empty());
  }
  return 0;
}
