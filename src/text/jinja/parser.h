// text/jinja/parser.h -- parses tokens into a tree, by recursive descent with bounded depth.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace skiff::jinja {

// Limit on the arguments of one macro or call. Real templates have a dozen.
inline constexpr size_t kMaxArguments = 1000;

// Throws TemplateError; line() is then the line of the error.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Body parse();
  int line() const { return token().line; }

 private:
  // Statements (parser.cc).
  Body body(std::initializer_list<std::string_view> ends);
  Body block_body(std::initializer_list<std::string_view> ends);
  Statement statement();
  Statement if_statement();
  Statement for_statement();
  Statement set_statement();
  Statement macro_statement();
  Statement call_statement();
  Statement filter_statement();
  Statement with_statement();
  Statement jump_statement(bool is_break);
  Statement autoescape_statement();
  Statement block_statement();
  void print_statement(Body& out);
  Body inner_body(std::initializer_list<std::string_view> ends);
  std::vector<Parameter> parameters();
  void finish_block(std::string_view end);
  std::string assignable_name();
  Target target(bool allow_attribute);
  Target target_tuple(bool allow_attribute);
  ExprPtr filter_chain();

  // These parse expressions; parse_expression.cc implements them.
  ExprPtr expression(bool conditional = true);
  enum class TupleEnd { kTag, kParenthesis, kRecursive };
  ExprPtr expression_or_tuple(bool conditional, TupleEnd end = TupleEnd::kTag);
  ExprPtr either();
  ExprPtr both();
  ExprPtr negation();
  ExprPtr comparison();
  bool comparison_operator(CompareOp* op);
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters = true);
  ExprPtr primary();
  ExprPtr literal_number();
  ExprPtr postfix(ExprPtr object);
  ExprPtr filters(ExprPtr input);
  ExprPtr filter(ExprPtr input);
  ExprPtr test(ExprPtr input);
  ExprPtr subscript(ExprPtr object);
  ExprPtr index(int line, ExprPtr object, ExprPtr key);
  ExprPtr list_display();
  ExprPtr dict_display();
  CallArgs call_args();
  void call_arg(CallArgs& args, std::set<std::string>& names);

  template <class Node>
  ExprPtr finish(int line, int height_of_children, Node node);
  ExprPtr binary(int line, BinaryOp op, ExprPtr left, ExprPtr right);
  static void include(const ExprPtr& child, int* height);
  static void include(const CallArgs& args, int* height);

  const Token& token(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool is(Token::Kind kind, std::string_view text, size_t ahead = 0) const {
    return token(ahead).kind == kind && token(ahead).text == text;
  }
  bool is_op(std::string_view text) const { return is(Token::Kind::kOperator, text); }
  bool is_word(std::string_view text) const { return is(Token::Kind::kName, text); }
  bool skip_op(std::string_view text) { return is_op(text) && (++at_, true); }
  bool skip_word(std::string_view text) { return is_word(text) && (++at_, true); }
  void expect_op(std::string_view text);
  void expect_word(std::string_view text);
  void expect(Token::Kind kind, std::string_view what);
  std::string expect_name();
  [[noreturn]] void fail_here(std::string_view wanted) const;
  // Lives while a nested construct is parsed.
  struct Nested {
    explicit Nested(Parser& parser);
    ~Nested() { --parser.depth_; }
    Parser& parser;
  };

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;                         // enclosing for statements of this macro
  std::vector<MacroDefinition*> macros_;  // enclosing, innermost last
  std::set<std::string> blocks_;          // names already used
  // Unknown filters and tests seen since the enclosing body or condition began. Inside an `if` they
  // only matter when they are reached; elsewhere they are refused at once.
  std::vector<std::string> unknown_;
};

}  // namespace skiff::jinja
