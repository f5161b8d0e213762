// text/tokenizer_stream.h -- reads a tokenizer.json without making a JSON value of its vocabulary
// and merges, which are nearly all of it.
#pragma once
#include <optional>
#include <string_view>

#include "base/json.h"
#include "text/bpe_reader.h"

namespace skiff::text {

struct TokenizerStream {
  Json file;  // model.vocab and model.merges are null
  BpeLists lists;
};

// Applies the limits of parse_json. Returns nullopt if the file is broken or unusual in any way;
// the slower parse_json and read_bpe_lists then read it or report what is wrong.
std::optional<TokenizerStream> stream_tokenizer_json(std::string_view bytes);

}  // namespace skiff::text
