// text/jinja/ast.h -- the parsed template. Immutable once parsed; shared by renderings.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/value.h"

namespace skiff::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;
using ExprList = std::vector<ExprPtr>;

struct CallArgs {
  ExprList positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr rest, named_rest;  // *rest, **named_rest
};

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
enum class UnaryOp { kNot, kMinus, kPlus };
struct Unary {
  UnaryOp op;
  ExprPtr operand;
};
enum class BinaryOp { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow, kAnd, kOr };
struct Binary {
  BinaryOp op;
  ExprPtr left, right;
};
struct Concat {
  ExprList parts;
};
enum class CompareOp { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };
struct Compare {
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct Conditional {
  ExprPtr condition, yes, no;
};  // `no` may be absent; the value is then undefined
struct Attribute {
  ExprPtr object;
  std::string name;
};
struct Index {
  ExprPtr object, key;
};
struct Slice {
  ExprPtr object, start, stop, step;
};  // any bound may be absent
struct Call {
  ExprPtr callee;
  CallArgs args;
};
struct Filter {
  ExprPtr input;
  std::string name;
  CallArgs args;
};  // without an input, the input of the enclosing block is used
struct Test {
  ExprPtr input;
  std::string name;
  CallArgs args;
  bool negated;
};
struct ListDisplay {
  ExprList items;
  bool tuple;
};
struct DictDisplay {
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
};

struct Expr {
  int line = 0;
  int height = 1;  // height of the tree, bounded by the parser
  std::variant<Literal, Name, Unary, Binary, Concat, Compare, Conditional, Attribute, Index, Slice,
               Call, Filter, Test, ListDisplay, DictDisplay>
      node;
};

// What an assignment writes to: a name, an attribute of a namespace, or a tuple of these.
struct Target {
  std::string name;
  std::string attribute;      // attribute of the namespace `name`, if not empty
  std::vector<Target> parts;  // a tuple, if is_tuple
  bool is_tuple = false;
};

struct Statement;
using Body = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExprPtr fallback;
};
struct MacroDefinition {
  std::string name;
  std::vector<Parameter> parameters;
  std::unique_ptr<const Body> body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Data {
  std::string text;
};
struct Output {
  ExprPtr value;
};
struct IfStatement {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct ForStatement {
  Target target;
  ExprPtr iterable, condition;  // `condition` may be absent
  Body body, otherwise;
  bool recursive = false;
};
struct SetStatement {
  Target target;
  ExprPtr value;
};
struct SetBlock {
  Target target;
  ExprPtr filter;
  Body body;
};  // `filter` may be absent
struct FilterBlock {
  ExprPtr filter;
  Body body;
};
struct CallBlock {
  ExprPtr call;
  MacroDefinition caller;
};
struct WithBlock {
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Body body;
};
// A block is rendered in place, because inheritance is not supported. It sees only the template's
// outermost names, not those of the scopes around it.
struct Block {
  Body body;
  bool scoped = false;
};
struct Break {};
struct Continue {};

struct Statement {
  int line = 0;
  std::variant<Data, Output, IfStatement, ForStatement, SetStatement, SetBlock, MacroDefinition,
               FilterBlock, CallBlock, WithBlock, Block, Break, Continue>
      node;
};

}  // namespace skiff::jinja
