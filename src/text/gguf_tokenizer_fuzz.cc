// Takes any bytes as a GGUF file: its tokenizer is refused, or encodes and decodes. The input is
// used as it is, and as edits of two small valid files, which random bytes would hardly ever form.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "gguf/gguf_writer_testing.h"
#include "text/gguf_tokenizer.h"

namespace {

using skiff::Json;

Json pieces() {
  return {{"tokenizer.ggml.model", "llama"},
          {"tokenizer.ggml.tokens", {"<unk>", "<s>", "\u2581", "a", "\u2581a"}},
          {"tokenizer.ggml.scores", {0.0, 0.0, -3.0, -3.0, -1.0}},
          {"tokenizer.ggml.token_type", {2, 3, 1, 1, 1}},
          {"tokenizer.ggml.bos_token_id", 1u},
          {"tokenizer.chat_template", "{{ messages }}"}};
}

Json merged_bytes() {
  return {{"tokenizer.ggml.model", "gpt2"},
          {"tokenizer.ggml.pre", "llama-bpe"},
          {"tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "<u>"}},
          {"tokenizer.ggml.token_type", {1, 1, 1, 3, 4}},
          {"tokenizer.ggml.merges", {"a b"}},
          {"tokenizer.ggml.bos_token_id", 3u}};
}

// Every three bytes of the input write one byte at one offset.
std::string edited(std::string file, std::string_view edits) {
  for (; edits.size() >= 3; edits.remove_prefix(3)) {
    const size_t at = static_cast<uint8_t>(edits[0]) << 8 | static_cast<uint8_t>(edits[1]);
    file[at % file.size()] = edits[2];
  }
  return file;
}

bool use(const std::string& file) try {
  const auto header = skiff::parse_gguf(std::as_bytes(std::span(file)));
  if (!header) return false;
  const auto tokenizer = skiff::text::make_gguf_tokenizer(*header, "fuzz");
  if (!tokenizer) return false;
  const auto ids = (*tokenizer)->encode(" ab aa<s>caf\xC3\xA9\n<u>\xFF", {});
  for (const int32_t id : ids) (*tokenizer)->piece(id);
  (*tokenizer)->decode(ids, true);
  (*tokenizer)->decode(ids, false);
  return true;
} catch (const skiff::LoadError&) {
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  use(std::string(input));
  const Json metadata = size % 2 ? pieces() : merged_bytes();
  const bool sound = use(edited(skiff::testing::gguf_bytes(metadata, {}), input));
  SKIFF_CHECK(sound || size >= 3, "the small file itself is refused");
  return 0;
}
