#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/print.h"

namespace skiff::jinja {

Value Interpreter::evaluate(const Expr& expr) {
  budget_.step();
  const Deeper deeper(*this, kExpression);
  line_ = expr.line;
  Value value = std::visit([&](const auto& node) { return evaluate(node); }, expr.node);
  line_ = expr.line;
  return value;
}

Value Interpreter::evaluate(const Name& node) {
  if (const Value* value = scope_->find(budget_, node.name)) return *value;
  return global_function(budget_, node.name);
}

Value Interpreter::evaluate(const Unary& node) {
  Value value = evaluate(*node.operand);
  if (node.op == UnaryOp::kNot) return !truthy(value);
  double number;
  if (value.is_undefined()) fail("{}", value.undefined_reason());
  if (!is_number(value, &number))
    fail("bad operand type for unary operator: '{}'", type_name(value));
  if (node.op == UnaryOp::kMinus) return negated(value);
  return value;
}

Value Interpreter::evaluate(const Binary& node) {
  Value left = evaluate(*node.left);
  if (node.op == BinaryOp::kAnd) return truthy(left) ? evaluate(*node.right) : left;
  if (node.op == BinaryOp::kOr) return truthy(left) ? left : evaluate(*node.right);
  const Value right = evaluate(*node.right);
  return binary_operation(*this, node.op, left, right);
}

Value Interpreter::evaluate(const Concat& node) {
  std::string text;
  for (const auto& part : node.parts) text += to_text(budget_, evaluate(*part));
  budget_.make(text.size());
  return text;
}

bool Interpreter::compare_values(CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq:
      return equal(budget_, a, b);
    case CompareOp::kNe:
      return !equal(budget_, a, b);
    case CompareOp::kLt:
      return compare(budget_, a, b) < 0;
    case CompareOp::kLe:
      return compare(budget_, a, b) <= 0;
    case CompareOp::kGt:
      return compare(budget_, a, b) > 0;
    case CompareOp::kGe:
      return compare(budget_, a, b) >= 0;
    case CompareOp::kIn:
      return contains(budget_, b, a);
    case CompareOp::kNotIn:
      return !contains(budget_, b, a);
  }
  return false;
}

Value Interpreter::evaluate(const Compare& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, expr] : node.rest) {
    Value right = evaluate(*expr);
    if (!compare_values(op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate(const Conditional& node) {
  if (truthy(evaluate(*node.condition))) return evaluate(*node.yes);
  if (node.no) return evaluate(*node.no);
  return Value::undefined("the inline if-expression evaluated to false and no else was given");
}

Value Interpreter::evaluate(const Attribute& node) {
  return attribute(evaluate(*node.object), node.name);
}

Value Interpreter::evaluate(const Index& node) {
  const Value object = evaluate(*node.object);
  return index(object, evaluate(*node.key));
}

Value Interpreter::evaluate(const Slice& node) {
  const Value object = evaluate(*node.object);
  const Value start = evaluate_or_none(node.start);
  const Value stop = evaluate_or_none(node.stop);
  return slice(object, start, stop, evaluate_or_none(node.step));
}

Args Interpreter::evaluate(const CallArgs& args) {
  Args out;
  for (const auto& arg : args.positional) out.positional.push_back(evaluate(*arg));
  if (args.rest)
    for (Value& item : iterate(budget_, evaluate(*args.rest))) out.positional.push_back(item);
  for (const auto& [name, arg] : args.named) out.named.emplace_back(name, evaluate(*arg));
  if (!args.named_rest) return out;
  const Value rest = evaluate(*args.named_rest);
  if (!rest.as_dict()) fail("argument after ** must be a mapping");
  for (const auto& [key, value] : rest.as_dict()->items) {
    if (!key.is_text()) fail("keywords must be strings");
    if (key.as_text()->size() > kMaxName)
      fail("a keyword of {} bytes, more than {}", key.as_text()->size(), kMaxName);
    budget_.make(sizeof(out.named[0]) + key.as_text()->size());
    out.named.emplace_back(*key.as_text(), value);
  }
  return out;
}

Value Interpreter::evaluate(const Call& node) {
  const Value callee = evaluate(*node.callee);
  return call(callee, evaluate(node.args));
}

Value Interpreter::call(const Value& callee, Args args) {
  if (callee.is_undefined()) fail("{}", callee.undefined_reason());
  if (Callable* function = callee.as_callable()) return function->call(*this, std::move(args));
  if (Loop* loop = callee.as_loop()) {
    const Door door(*this, nullptr, args);
    if (!loop->scope || !loop->statement->recursive)
      fail("the loop must have the 'recursive' marker to be called");
    return run_loop(*loop->statement, loop->scope, Bound("loop", args, {"iterable"}).need(0),
                    loop->nesting + 1);
  }
  fail("'{}' object is not callable", type_name(callee));
}

Value Interpreter::evaluate(const Filter& node) {
  const Value input = node.input ? evaluate(*node.input) : block_input_;
  return apply_filter(*this, node.name, input, evaluate(node.args));
}

Value Interpreter::evaluate(const Test& node) {
  const Value input = evaluate(*node.input);
  return apply_test(*this, node.name, input, evaluate(node.args)) != node.negated;
}

Value Interpreter::evaluate(const ListDisplay& node) {
  Values items;
  for (const auto& item : node.items) items.push_back(evaluate(*item));
  return Value::seq(budget_, node.tuple ? Seq::Form::kTuple : Seq::Form::kList, std::move(items));
}

Value Interpreter::evaluate(const DictDisplay& node) {
  Pairs items;
  for (const auto& [key_expr, value_expr] : node.items) {
    Value key = evaluate(*key_expr);
    check_hashable(budget_, key);
    Value value = evaluate(*value_expr);
    const auto same = std::find_if(items.begin(), items.end(), [&](const auto& item) {
      return equal(budget_, item.first, key);
    });
    if (same != items.end())
      same->second = std::move(value);
    else
      items.emplace_back(std::move(key), std::move(value));
  }
  return Value::dict(budget_, std::move(items));
}

}  // namespace skiff::jinja
