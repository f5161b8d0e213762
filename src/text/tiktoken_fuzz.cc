// Takes any bytes as a rank file: they are refused, or give a tokenizer that encodes and decodes.
// The input is used as it is, and behind the ranks of all bytes, without which no file is accepted.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/tiktoken_tokenizer.h"

namespace {

std::string byte_ranks() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (unsigned byte = 0; byte < 256; ++byte) {
    out += {kDigits[byte >> 2], kDigits[byte << 4 & 63], '=', '=', ' '};
    out += std::to_string(byte) + "\n";
  }
  return out;
}

bool use(const std::string& file) {
  skiff::text::TokenizerConfig config;
  config.tokenizer_class = "QWenTokenizer";
  const auto tokenizer = skiff::text::parse_tiktoken(file, config, "fuzz");
  if (!tokenizer) return false;
  const auto ids = (*tokenizer)->encode(" It's 12 caf\xC3\xA9s aaab\n\n<|im_end|>\xFF", {});
  for (const int32_t id : ids) (*tokenizer)->piece(id);
  (*tokenizer)->decode(ids, true);
  (*tokenizer)->decode(ids, false);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  use(input);
  const bool sound = use(byte_ranks() + "YWE= 256\nYWFh 257\n" + input);
  SKIFF_CHECK(sound || size > 0, "the ranks of all bytes are refused");
  return 0;
}
