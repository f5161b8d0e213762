// text/jinja/lexer.h -- template text to tokens, with trim_blocks and lstrip_blocks on, as chat
// templates are written for.
#pragma once
#include <string>
#include <vector>

namespace skiff::jinja {

struct Token {
  enum class Kind {
    kData,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;  // string literals unescaped, numbers without '_'
  int line = 1;
};

// Ends with a kEnd token. Throws TemplateError, its text without the line, after setting *line.
std::vector<Token> tokenize(std::string source, int* line);

}  // namespace skiff::jinja
