#include "text/jinja/template.h"

#include "text/jinja/parser.h"
#include "text/jinja/print.h"

namespace skiff::jinja {
namespace {

Error at_line(int line, const std::string& what) {
  return {Code::kInvalid, fmt::format("line {}: {}", line, what)};
}

}  // namespace

Result<Template> Template::parse(const std::string& text) {
  constexpr size_t kMaxBytes = 1 << 20;
  if (text.size() > kMaxBytes)
    return at_line(1, fmt::format("{} bytes of template, more than {}", text.size(), kMaxBytes));
  int line = 1;
  std::vector<Token> tokens;
  try {
    tokens = tokenize(text, &line);
  } catch (const TemplateError& e) {
    return at_line(line, e.what());
  }
  Parser parser(std::move(tokens));
  try {
    return Template(parser.parse(), text);
  } catch (const TemplateError& e) {
    return at_line(parser.line(), e.what());
  }
}

Result<std::string> Template::render(const OrderedJson& variables, const Clock& clock,
                                     const Limits& limits) const {
  std::vector<Variable> list;
  for (const auto& [name, value] : variables.items()) list.push_back({name, &value});
  return render(list, clock, limits);
}

Result<std::string> Template::render(std::span<const Variable> variables, const Clock& clock,
                                     const Budget& budget) const {
  Interpreter interpreter(budget, clock);
  try {
    for (const auto& [name, value] : variables)
      interpreter.define(name, Value::from_json(interpreter.budget(), *value));
    return interpreter.run(*body_);
  } catch (const TemplateError& e) {
    return at_line(interpreter.line(), e.what());
  }
}

Result<std::string> json_of(const OrderedJson& value, Budget& budget) {
  try {
    return json_text(budget, Value::from_json(budget, value), {});
  } catch (const TemplateError& e) {
    return Error{Code::kInvalid, e.what()};
  }
}

}  // namespace skiff::jinja
