#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/budget.h"

namespace skiff::jinja {
namespace {

using Kind = Token::Kind;

std::string described(const Token& token) {
  switch (token.kind) {
    case Kind::kEnd:
      return "the end of the template";
    case Kind::kVariableEnd:
      return "'}}'";
    case Kind::kBlockEnd:
      return "'%}'";
    default:
      return fmt::format("'{}'", token.text.substr(0, 40));
  }
}

bool names_loop(const Target& target) {
  return target.name == "loop" || std::any_of(target.parts.begin(), target.parts.end(), names_loop);
}

}  // namespace

Parser::Nested::Nested(Parser& p) : parser(p) {
  if (++parser.depth_ > 100) fail("nested deeper than 100");
}

void Parser::fail_here(std::string_view wanted) const {
  fail("expected {}, found {}", wanted, described(token()));
}

void Parser::expect_op(std::string_view text) {
  if (!skip_op(text)) fail_here(text);
}

void Parser::expect_word(std::string_view text) {
  if (!skip_word(text)) fail_here(text);
}

void Parser::expect(Kind kind, std::string_view what) {
  if (token().kind != kind) fail_here(what);
  ++at_;
}

std::string Parser::expect_name() {
  if (token().kind != Kind::kName) fail_here("a name");
  return tokens_[at_++].text;
}

Body Parser::parse() {
  Body all = inner_body({});
  if (token().kind != Kind::kEnd) fail_here("the end of the template");
  return all;
}

// Parses statements up to a block that begins with one of `ends`; the cursor is then at that word.
Body Parser::body(std::initializer_list<std::string_view> ends) {
  const Nested nested(*this);
  Body out;
  for (;;) {
    const int line = token().line;
    switch (token().kind) {
      case Kind::kData:
        out.push_back({line, Data{std::move(tokens_[at_++].text)}});
        break;
      case Kind::kVariableBegin: {
        ++at_;
        out.push_back({line, Output{expression_or_tuple(true)}});
        expect(Kind::kVariableEnd, "'}}'");
        break;
      }
      case Kind::kBlockBegin: {
        ++at_;
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return is_word(end); }))
          return out;
        if (skip_word("print")) {
          print_statement(out);
        } else {
          out.push_back(statement());
          out.back().line = line;
        }
        break;
      }
      case Kind::kEnd:
        if (ends.size()) fail("a block is not closed with {{% {} %}}", *(ends.end() - 1));
        return out;
      default:
        fail_here("text or a tag");
    }
  }
}

// Parses a body in which an unknown filter or test is an error even if an `if` encloses the
// statement.
Body Parser::inner_body(std::initializer_list<std::string_view> ends) {
  const size_t before = unknown_.size();
  Body out = body(ends);
  if (unknown_.size() > before) fail("{}", unknown_.back());
  return out;
}

// Parses "%}" and the body after it.
Body Parser::block_body(std::initializer_list<std::string_view> ends) {
  skip_op(":");
  expect(Kind::kBlockEnd, "'%}'");
  return inner_body(ends);
}

void Parser::finish_block(std::string_view end) {
  expect_word(end);
  expect(Kind::kBlockEnd, "'%}'");
}

Statement Parser::statement() {
  if (skip_word("if")) return if_statement();
  if (skip_word("for")) return for_statement();
  if (skip_word("set")) return set_statement();
  if (skip_word("macro")) return macro_statement();
  if (skip_word("call")) return call_statement();
  if (skip_word("filter")) return filter_statement();
  if (skip_word("with")) return with_statement();
  if (skip_word("break")) return jump_statement(true);
  if (skip_word("continue")) return jump_statement(false);
  if (skip_word("autoescape")) return autoescape_statement();
  if (skip_word("block")) return block_statement();
  if (skip_word("generation")) {  // marks text for training; only its body matters here
    WithBlock node{{}, block_body({"endgeneration"})};
    finish_block("endgeneration");
    return {0, std::move(node)};
  }
  for (const char* loading : {"include", "import", "from", "extends"})
    if (is_word(loading)) fail("the tag '{}' is refused: there are no other templates", loading);
  fail("unknown or unsupported tag {}", described(token()));
}

void Parser::print_statement(Body& out) {
  while (token().kind != Kind::kBlockEnd) {
    const int line = token().line;
    out.push_back({line, Output{expression()}});
    if (token().kind != Kind::kBlockEnd) expect_op(",");
  }
  ++at_;
}

Statement Parser::autoescape_statement() {
  const ExprPtr on = expression();
  const auto* literal = std::get_if<Literal>(&on->node);
  if (!literal || truthy(literal->value))
    fail("the tag 'autoescape' is refused unless it says false: prompts are no HTML");
  WithBlock node{{}, block_body({"endautoescape"})};
  finish_block("endautoescape");
  return {0, std::move(node)};
}

Statement Parser::block_statement() {
  const std::string name = expect_name();
  if (!blocks_.insert(name).second) fail("block '{}' defined twice", name);
  Block node;
  node.scoped = skip_word("scoped");
  if (is_word("required")) fail("a required block needs a template that extends this one");
  const int loops = std::exchange(loops_, 0);
  node.body = block_body({"endblock"});
  loops_ = loops;
  expect_word("endblock");
  skip_word(name);
  expect(Kind::kBlockEnd, "'%}'");
  return {0, std::move(node)};
}

Statement Parser::if_statement() {
  IfStatement node;
  const size_t before = unknown_.size();
  const auto soft_body = [&](std::initializer_list<std::string_view> ends) {
    skip_op(":");
    expect(Kind::kBlockEnd, "'%}'");
    return body(ends);
  };
  for (;;) {
    ExprPtr condition = expression_or_tuple(false);
    node.branches.emplace_back(std::move(condition), soft_body({"elif", "else", "endif"}));
    if (skip_word("elif")) continue;
    if (skip_word("else")) node.otherwise = soft_body({"endif"});
    finish_block("endif");
    unknown_.resize(before);
    return {0, std::move(node)};
  }
}

Statement Parser::for_statement() {
  ForStatement node;
  node.target = target_tuple(false);
  if (names_loop(node.target)) fail("can't assign to the loop variable");
  expect_word("in");
  node.iterable = expression_or_tuple(false, TupleEnd::kRecursive);
  if (skip_word("if")) node.condition = expression();
  node.recursive = skip_word("recursive");
  ++loops_;
  node.body = block_body({"endfor", "else"});
  --loops_;
  if (skip_word("else")) node.otherwise = block_body({"endfor"});
  finish_block("endfor");
  return {0, std::move(node)};
}

Statement Parser::set_statement() {
  Target to = target_tuple(true);
  if (skip_op("=")) {
    SetStatement node{std::move(to), expression_or_tuple(true)};
    expect(Kind::kBlockEnd, "'%}'");
    return {0, std::move(node)};
  }
  ExprPtr chain = is_op("|") ? filter_chain() : nullptr;
  SetBlock node{std::move(to), std::move(chain), block_body({"endset"})};
  finish_block("endset");
  return {0, std::move(node)};
}

std::vector<Parameter> Parser::parameters() {
  std::vector<Parameter> out;
  std::set<std::string> names;
  expect_op("(");
  while (!is_op(")")) {
    if (!out.empty()) expect_op(",");
    Parameter parameter{assignable_name(), nullptr};
    if (!names.insert(parameter.name).second) fail("two parameters named '{}'", parameter.name);
    if (names.size() > kMaxArguments) fail("more than {} parameters", kMaxArguments);
    if (skip_op("="))
      parameter.fallback = expression();
    else if (!out.empty() && out.back().fallback)
      fail("a parameter without default after one with");
    out.push_back(std::move(parameter));
  }
  expect_op(")");
  return out;
}

Statement Parser::macro_statement() {
  MacroDefinition node;
  node.name = assignable_name();
  node.parameters = parameters();
  macros_.push_back(&node);
  const int loops = std::exchange(loops_, 0);
  node.body = std::make_unique<Body>(block_body({"endmacro"}));
  loops_ = loops;
  macros_.pop_back();
  finish_block("endmacro");
  return {0, std::move(node)};
}

Statement Parser::call_statement() {
  CallBlock node;
  node.caller.name = "caller";
  if (is_op("(")) node.caller.parameters = parameters();
  node.call = expression();
  if (!std::holds_alternative<Call>(node.call->node))
    fail("{{% call %}} needs the call of a macro");
  macros_.push_back(&node.caller);
  const int loops = std::exchange(loops_, 0);
  node.caller.body = std::make_unique<Body>(block_body({"endcall"}));
  loops_ = loops;
  macros_.pop_back();
  finish_block("endcall");
  return {0, std::move(node)};
}

// Parses name(args) | name ...; the first filter has no input.
ExprPtr Parser::filter_chain() {
  skip_op("|");
  return filters(filter(nullptr));
}

Statement Parser::filter_statement() {
  FilterBlock node;
  node.filter = filter_chain();
  node.body = block_body({"endfilter"});
  finish_block("endfilter");
  return {0, std::move(node)};
}

Statement Parser::with_statement() {
  WithBlock node;
  while (token().kind != Kind::kBlockEnd) {
    if (!node.bindings.empty()) expect_op(",");
    Target to = target(false);
    expect_op("=");
    node.bindings.emplace_back(std::move(to), expression());
  }
  node.body = block_body({"endwith"});
  finish_block("endwith");
  return {0, std::move(node)};
}

Statement Parser::jump_statement(bool is_break) {
  if (loops_ == 0) fail("'{}' outside a loop", is_break ? "break" : "continue");
  expect(Kind::kBlockEnd, "'%}'");
  if (is_break) return {0, Break{}};
  return {0, Continue{}};
}

std::string Parser::assignable_name() {
  std::string name = expect_name();
  for (const char* constant : {"true", "false", "none", "True", "False", "None"})
    if (name == constant) fail("can't assign to '{}'", name);
  return name;
}

Target Parser::target(bool allow_attribute) {
  const Nested nested(*this);
  if (skip_op("(")) {
    Target inner = target_tuple(allow_attribute);
    expect_op(")");
    return inner;
  }
  Target out;
  out.name = assignable_name();
  if (allow_attribute && skip_op(".")) out.attribute = expect_name();
  return out;
}

Target Parser::target_tuple(bool allow_attribute) {
  Target first = target(allow_attribute);
  if (!is_op(",")) return first;
  Target all;
  all.is_tuple = true;
  all.parts.push_back(std::move(first));
  while (skip_op(",")) {
    if (token().kind != Kind::kName && !is_op("(")) break;
    if (is_word("in")) break;
    all.parts.push_back(target(allow_attribute));
  }
  return all;
}

}  // namespace skiff::jinja
