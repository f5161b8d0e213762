#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "text/jinja/budget.h"
#include "text/jinja/builtins.h"
#include "text/jinja/parser.h"

namespace skiff::jinja {
namespace {

using Kind = Token::Kind;
constexpr int kMaxHeight = 120;

}  // namespace

template <class Node>
ExprPtr Parser::finish(int line, int height, Node node) {
  if (height >= kMaxHeight) fail("an expression nested deeper than {}", kMaxHeight);
  return std::make_unique<const Expr>(Expr{line, height + 1, std::move(node)});
}

ExprPtr Parser::binary(int line, BinaryOp op, ExprPtr left, ExprPtr right) {
  const int height = std::max(left->height, right->height);
  return finish(line, height, Binary{op, std::move(left), std::move(right)});
}

void Parser::include(const ExprPtr& child, int* height) {
  if (child) *height = std::max(*height, child->height);
}

void Parser::include(const CallArgs& args, int* height) {
  for (const auto& arg : args.positional) include(arg, height);
  for (const auto& [name, arg] : args.named) include(arg, height);
  include(args.rest, height);
  include(args.named_rest, height);
}

ExprPtr Parser::expression(bool conditional) {
  const Nested nested(*this);
  int line = token().line;
  const size_t before = unknown_.size();
  ExprPtr value = either();
  while (conditional && skip_word("if")) {
    ExprPtr condition = either();
    ExprPtr no = skip_word("else") ? expression() : nullptr;
    int height = 0;
    for (const ExprPtr* child : {&condition, &value, &no}) include(*child, &height);
    value =
        finish(line, height, Conditional{std::move(condition), std::move(value), std::move(no)});
    line = token().line;
    unknown_.resize(before);
  }
  return value;
}

ExprPtr Parser::expression_or_tuple(bool conditional, TupleEnd end) {
  const int line = token().line;
  const auto at_end = [&] {
    return token().kind == Kind::kVariableEnd || token().kind == Kind::kBlockEnd || is_op(")") ||
           (end == TupleEnd::kRecursive && is_word("recursive"));
  };
  ListDisplay tuple{{}, true};
  bool comma = false;
  int height = 0;
  while (!at_end()) {
    tuple.items.push_back(expression(conditional));
    include(tuple.items.back(), &height);
    if (!is_op(",")) break;
    ++at_;
    comma = true;
  }
  if (!comma && !tuple.items.empty()) return std::move(tuple.items.front());
  if (tuple.items.empty() && end != TupleEnd::kParenthesis) fail_here("an expression");
  return finish(line, height, std::move(tuple));
}

ExprPtr Parser::either() {
  ExprPtr left = both();
  while (is_word("or")) {
    const int line = tokens_[at_++].line;
    left = binary(line, BinaryOp::kOr, std::move(left), both());
  }
  return left;
}

ExprPtr Parser::both() {
  ExprPtr left = negation();
  while (is_word("and")) {
    const int line = tokens_[at_++].line;
    left = binary(line, BinaryOp::kAnd, std::move(left), negation());
  }
  return left;
}

ExprPtr Parser::negation() {
  if (!is_word("not")) return comparison();
  const Nested nested(*this);
  const int line = tokens_[at_++].line;
  ExprPtr operand = negation();
  const int height = operand->height;
  return finish(line, height, Unary{UnaryOp::kNot, std::move(operand)});
}

bool Parser::comparison_operator(CompareOp* op) {
  static constexpr std::array<std::pair<std::string_view, CompareOp>, 6> kOperators = {
      {{"==", CompareOp::kEq},
       {"!=", CompareOp::kNe},
       {"<", CompareOp::kLt},
       {"<=", CompareOp::kLe},
       {">", CompareOp::kGt},
       {">=", CompareOp::kGe}}};
  for (const auto& [text, meaning] : kOperators)
    if (skip_op(text)) return *op = meaning, true;
  if (skip_word("in")) return *op = CompareOp::kIn, true;
  if (!is_word("not") || !is(Kind::kName, "in", 1)) return false;
  at_ += 2;
  return *op = CompareOp::kNotIn, true;
}

ExprPtr Parser::comparison() {
  const int line = token().line;
  ExprPtr first = sum();
  Compare node;
  int height = first->height;
  for (CompareOp op; comparison_operator(&op);) {
    node.rest.emplace_back(op, sum());
    include(node.rest.back().second, &height);
  }
  if (node.rest.empty()) return first;
  node.first = std::move(first);
  return finish(line, height, std::move(node));
}

ExprPtr Parser::sum() {
  ExprPtr left = concatenation();
  while (is_op("+") || is_op("-")) {
    const BinaryOp op = is_op("+") ? BinaryOp::kAdd : BinaryOp::kSub;
    const int line = tokens_[at_++].line;
    left = binary(line, op, std::move(left), concatenation());
  }
  return left;
}

ExprPtr Parser::concatenation() {
  const int line = token().line;
  ExprPtr first = product();
  if (!is_op("~")) return first;
  Concat node;
  int height = first->height;
  node.parts.push_back(std::move(first));
  while (skip_op("~")) {
    node.parts.push_back(product());
    include(node.parts.back(), &height);
  }
  return finish(line, height, std::move(node));
}

ExprPtr Parser::product() {
  static constexpr std::array<std::pair<std::string_view, BinaryOp>, 4> kOperators = {
      {{"*", BinaryOp::kMul},
       {"/", BinaryOp::kDiv},
       {"//", BinaryOp::kFloorDiv},
       {"%", BinaryOp::kMod}}};
  ExprPtr left = power();
  for (;;) {
    const auto found = std::find_if(kOperators.begin(), kOperators.end(),
                                    [&](const auto& entry) { return is_op(entry.first); });
    if (found == kOperators.end()) return left;
    const int line = tokens_[at_++].line;
    left = binary(line, found->second, std::move(left), power());
  }
}

// The operator is left-associative, as in Jinja.
ExprPtr Parser::power() {
  ExprPtr left = unary();
  while (is_op("**")) {
    const int line = tokens_[at_++].line;
    left = binary(line, BinaryOp::kPow, std::move(left), unary());
  }
  return left;
}

ExprPtr Parser::unary(bool with_filters) {
  const Nested nested(*this);
  ExprPtr node;
  if (is_op("-") || is_op("+")) {
    const UnaryOp op = is_op("-") ? UnaryOp::kMinus : UnaryOp::kPlus;
    const int line = tokens_[at_++].line;
    ExprPtr operand = unary(false);
    const int height = operand->height;
    node = finish(line, height, Unary{op, std::move(operand)});
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters(std::move(node)) : std::move(node);
}

ExprPtr Parser::primary() {
  const int line = token().line;
  if (token().kind == Kind::kName) {
    std::string name = expect_name();
    if (name == "true" || name == "True") return finish(line, 0, Literal{Value(true)});
    if (name == "false" || name == "False") return finish(line, 0, Literal{Value(false)});
    if (name == "none" || name == "None") return finish(line, 0, Literal{});
    const bool caller = name == "caller", varargs = name == "varargs", kwargs = name == "kwargs";
    if (caller || varargs || kwargs) {
      for (MacroDefinition* macro : macros_) {
        macro->uses_caller |= caller;
        macro->uses_varargs |= varargs;
        macro->uses_kwargs |= kwargs;
      }
    }
    return finish(line, 0, Name{std::move(name)});
  }
  if (token().kind == Kind::kString) {
    std::string text;
    while (token().kind == Kind::kString) text += tokens_[at_++].text;
    return finish(line, 0, Literal{Value(std::move(text))});
  }
  if (token().kind == Kind::kInteger || token().kind == Kind::kFloat) return literal_number();
  if (skip_op("(")) {
    ExprPtr inner = expression_or_tuple(true, TupleEnd::kParenthesis);
    expect_op(")");
    return inner;
  }
  if (skip_op("[")) return list_display();
  if (skip_op("{")) return dict_display();
  fail_here("an expression");
}

ExprPtr Parser::literal_number() {
  const Token& number = tokens_[at_++];
  if (number.kind == Kind::kFloat)
    return finish(number.line, 0, Literal{Value(std::strtod(number.text.c_str(), nullptr))});
  std::string_view digits = number.text;
  int base = 10;
  if (digits.size() > 1 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) digits.remove_prefix(2);
  }
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value, base);
  if (result.ec != std::errc() || result.ptr != end)
    fail("{} is not a 64-bit integer", number.text);
  return finish(number.line, 0, Literal{Value(value)});
}

ExprPtr Parser::list_display() {
  const int line = token().line;
  ListDisplay node{{}, false};
  int height = 0;
  while (!is_op("]")) {
    if (!node.items.empty()) expect_op(",");
    if (is_op("]")) break;
    node.items.push_back(expression());
    include(node.items.back(), &height);
  }
  expect_op("]");
  return finish(line, height, std::move(node));
}

ExprPtr Parser::dict_display() {
  const int line = token().line;
  DictDisplay node;
  int height = 0;
  while (!is_op("}")) {
    if (!node.items.empty()) expect_op(",");
    if (is_op("}")) break;
    ExprPtr key = expression();
    expect_op(":");
    node.items.emplace_back(std::move(key), expression());
    include(node.items.back().first, &height), include(node.items.back().second, &height);
  }
  expect_op("}");
  return finish(line, height, std::move(node));
}

ExprPtr Parser::postfix(ExprPtr object) {
  for (;;) {
    const int line = token().line;
    int height = object->height;
    if (is_op("[")) {
      object = subscript(std::move(object));
    } else if (skip_op(".")) {
      if (token().kind == Kind::kInteger) {
        ExprPtr key = literal_number();
        object = finish(line, height, Index{std::move(object), std::move(key)});
      } else {
        object = finish(line, height, Attribute{std::move(object), expect_name()});
      }
    } else if (is_op("(")) {
      CallArgs args = call_args();
      include(args, &height);
      object = finish(line, height, Call{std::move(object), std::move(args)});
    } else {
      return object;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr object) {
  const int line = token().line;
  int height = object->height;
  expect_op("[");
  ExprPtr start = is_op(":") ? nullptr : expression();
  include(start, &height);
  if (is_op(",")) return index(line, std::move(object), std::move(start));
  if (skip_op("]")) return finish(line, height, Index{std::move(object), std::move(start)});
  expect_op(":");
  Slice node{std::move(object), std::move(start), nullptr, nullptr};
  if (!is_op(":") && !is_op("]")) node.stop = expression();
  if (skip_op(":") && !is_op("]")) node.step = expression();
  expect_op("]");
  include(node.stop, &height), include(node.step, &height);
  return finish(line, height, std::move(node));
}

// Parses object[key, key ...], read up to the first comma.
ExprPtr Parser::index(int line, ExprPtr object, ExprPtr key) {
  ListDisplay tuple{{}, true};
  int height = key->height;
  tuple.items.push_back(std::move(key));
  while (skip_op(",")) {
    tuple.items.push_back(expression());
    include(tuple.items.back(), &height);
  }
  expect_op("]");
  ExprPtr keys = finish(line, height, std::move(tuple));
  height = std::max(object->height, keys->height);
  return finish(line, height, Index{std::move(object), std::move(keys)});
}

CallArgs Parser::call_args() {
  CallArgs args;
  std::set<std::string> names;
  expect_op("(");
  for (bool first = true; !is_op(")"); first = false) {
    if (!first) expect_op(",");
    if (!is_op(")")) call_arg(args, names);
    if (args.positional.size() + args.named.size() > kMaxArguments)
      fail("more than {} arguments", kMaxArguments);
  }
  expect_op(")");
  return args;
}

void Parser::call_arg(CallArgs& args, std::set<std::string>& names) {
  if (args.named_rest) fail("an argument after **");
  if (skip_op("**")) {
    args.named_rest = expression();
  } else if (skip_op("*")) {
    if (args.rest) fail("more than one *argument");
    args.rest = expression();
  } else if (token().kind == Kind::kName && is(Kind::kOperator, "=", 1)) {
    std::string name = expect_name();
    ++at_;
    if (!names.insert(name).second) fail("two arguments named '{}'", name);
    args.named.emplace_back(std::move(name), expression());
  } else {
    if (!args.named.empty() || args.rest) fail("a positional argument after named ones");
    args.positional.push_back(expression());
  }
}

ExprPtr Parser::filters(ExprPtr input) {
  for (;;) {
    if (is_op("|")) {
      ++at_;
      input = filter(std::move(input));
    } else if (is_word("is")) {
      ++at_;
      input = test(std::move(input));
    } else if (is_op("(")) {
      const int line = token().line;
      CallArgs args = call_args();
      int height = input->height;
      include(args, &height);
      input = finish(line, height, Call{std::move(input), std::move(args)});
    } else {
      return input;
    }
  }
}

ExprPtr Parser::filter(ExprPtr input) {
  const int line = token().line;
  Filter node{std::move(input), expect_name(), {}};
  while (skip_op(".")) node.name.append(".").append(expect_name());
  if (!has_filter(node.name)) unknown_.push_back("no filter named '" + node.name + "'");
  if (is_op("(")) node.args = call_args();
  int height = 0;
  include(node.input, &height), include(node.args, &height);
  return finish(line, height, std::move(node));
}

ExprPtr Parser::test(ExprPtr input) {
  const int line = token().line;
  const bool negated = skip_word("not");
  Test node{std::move(input), expect_name(), {}, negated};
  while (skip_op(".")) node.name.append(".").append(expect_name());
  if (!has_test(node.name)) unknown_.push_back("no test named '" + node.name + "'");
  static constexpr std::array<std::string_view, 3> kAfter = {"else", "or", "and"};
  if (is_word("is")) fail("tests cannot be chained with is");
  const bool word = token().kind == Kind::kName &&
                    std::find(kAfter.begin(), kAfter.end(), token().text) == kAfter.end();
  if (is_op("("))
    node.args = call_args();
  else if (word || token().kind == Kind::kString || token().kind == Kind::kInteger ||
           token().kind == Kind::kFloat || is_op("[") || is_op("{"))
    node.args.positional.push_back(postfix(primary()));
  int height = 0;
  include(node.input, &height), include(node.args, &height);
  return finish(line, height, std::move(node));
}

}  // namespace skiff::jinja
