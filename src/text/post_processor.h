// text/post_processor.h -- "post_processor" of tokenizer.json: the tokens put around a text.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace skiff::text {

struct TextFrame {
  std::vector<int32_t> before, after;
  bool given = false;  // whether the file decides which tokens are added
};

// `spec` is the value of the key. Supported: Sequence, TemplateProcessing, RobertaProcessing and
// BertProcessing (of a single text), and ByteLevel, which only concerns offsets. Throws LoadError
// naming `where` for everything else.
TextFrame read_post_processor(const Json& spec, const std::string& where);

}  // namespace skiff::text
