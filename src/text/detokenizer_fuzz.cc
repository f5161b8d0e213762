// Takes any bytes as the tokens and stop strings of a reply, and checks that the streamed text ends
// before the stop string that is complete first, however the bytes are cut into tokens.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/detokenizer.h"
#include "text/pieces_testing.h"

namespace skiff::text {
namespace {

// The input consists of fields of up to seven bytes, each after a byte whose low bits are the size.
// The first three are stop strings, the others tokens.
std::vector<std::string> fields_of(std::string_view input) {
  std::vector<std::string> out;
  while (!input.empty()) {
    const size_t size = static_cast<uint8_t>(input[0]) & 7;
    out.emplace_back(input.substr(1, size));
    input.remove_prefix(std::min(input.size(), size + 1));
  }
  return out;
}

// The definition: cuts the text at the stop string that is complete first, the longest of those
// that end there.
std::string cut(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops)
      if (is_valid_utf8(stop) && std::string_view(text).substr(0, end).ends_with(stop))
        longest = std::max(longest, stop.size());
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

void run(std::string_view input) {
  std::vector<std::string> fields = fields_of(input.substr(0, 4096));
  const size_t num_stops = std::min<size_t>(3, fields.size());
  const auto middle = fields.begin() + static_cast<ptrdiff_t>(num_stops);
  const std::vector<std::string> stops(fields.begin(), middle);
  const Pieces pieces({middle, fields.end()}, 0);
  Detokenizer detokenizer(pieces, {.stops = stops});
  std::string bytes, text;
  for (int token = 0; token < pieces.vocab_size(); ++token) {
    bytes += pieces.piece(token);
    text += detokenizer.push(token);
    SKIFF_CHECK(is_valid_utf8(text), "half a character after token {}", token);
  }
  text += detokenizer.flush();
  SKIFF_CHECK(text == cut(utf8_sanitized(bytes), stops), "streamed \"{}\"", text);
}

}  // namespace
}  // namespace skiff::text

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  skiff::text::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
