// text/jinja/lexer.h -- splits template text into tokens, with trim_blocks and lstrip_blocks on, as
// chat templates expect.
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

// The result ends with a kEnd token. Sets *line and throws a TemplateError, whose text lacks the
// line, on an error.
std::vector<Token> tokenize(const std::string& source, int* line);

}  // namespace skiff::jinja
