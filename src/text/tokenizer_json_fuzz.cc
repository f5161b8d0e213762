// Takes any bytes as tokenizer.json: they are refused, or give a tokenizer that encodes and
// decodes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = skiff::text::parse_tokenizer_json(bytes, {}, "fuzz");
  if (!tokenizer) return 0;
  const auto ids = (*tokenizer)->encode(" It's 12 caf\xC3\xA9s\n\n<s>\xFF", {});
  for (const int32_t id : ids) (*tokenizer)->piece(id);
  (*tokenizer)->decode(ids, true);
  (*tokenizer)->decode(ids, false);
  return 0;
}
