// text/jinja/interpreter.h -- evaluates the tree of a template and writes its text. One per
// rendering.
#pragma once
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/loop.h"
#include "text/jinja/value.h"

namespace skiff::jinja {

using Clock = std::function<std::time_t()>;

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;
  int depth = 0;  // number of parents
  // Both functions charge for the names that they pass, because a template may define very many.
  const Value* find(Budget& budget, const std::string& name) const;  // here or in a parent
  void set(Budget& budget, const std::string& name, Value value);    // here
};

// Every function may throw TemplateError; line() is then the line of the error.
class Interpreter {
 public:
  Interpreter(const Budget& budget, Clock clock);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;

  void define(const std::string& name, Value value) {
    scope_->set(budget_, name, std::move(value));
  }
  std::string run(const Body& body);
  int line() const { return line_; }

  // The functions below are for filters, methods and macros.
  Budget& budget() { return budget_; }
  std::time_t now() const { return clock_(); }
  Value call(const Value& callee, Args args);
  Value attribute(const Value& object, const std::string& name);
  Value index(const Value& object, const Value& key);
  Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);
  Value call_macro(const MacroDefinition& macro, const std::shared_ptr<Scope>& scope, Args args);
  std::string run_loop(const ForStatement& loop, const std::shared_ptr<Scope>& scope,
                       const Value& iterable, int nesting);
  std::shared_ptr<Namespace> make_namespace();
  // Keeps a loop alive until the end of the rendering, because its `last_seen` may refer back to
  // it.
  void keep(const std::shared_ptr<Loop>& loop);

  // Lives while a filter, a test or a callable runs. Every call of one constructs it, so none can
  // be forgotten: it charges for reading the input and the arguments and for the copies of the
  // arguments, and counts the nesting.
  struct Door;

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // Counts nesting while alive, in units of at most about a kilobyte of stack.
  enum Weight { kExpression = 1, kCall = 4, kBody = 4 };
  struct Deeper {
    Deeper(Interpreter& interpreter, Weight w);
    ~Deeper() { in.depth_ -= weight; }
    Interpreter& in;
    int weight;
  };
  struct Inside;  // a scope of its own while alive

  Flow execute(const Body& body);
  Flow execute(const Data& node);
  Flow execute(const Output& node);
  Flow execute(const IfStatement& node);
  Flow execute(const ForStatement& node);
  Flow execute(const SetStatement& node);
  Flow execute(const SetBlock& node);
  Flow execute(const MacroDefinition& node);
  Flow execute(const FilterBlock& node);
  Flow execute(const CallBlock& node);
  Flow execute(const WithBlock& node);
  Flow execute(const Block& node);
  Flow execute(const Break&) { return Flow::kBreak; }
  Flow execute(const Continue&) { return Flow::kContinue; }
  void loop_over(const ForStatement& node, const Value& iterable, int nesting);
  Values filtered(const ForStatement& node, Values items);
  void assign(const Target& target, const Value& value);
  void write(std::string_view text);
  void write_text(const Value& value);
  std::string captured(const Body& body, Flow* flow = nullptr);
  Value macro_value(const MacroDefinition& node);

  Value evaluate(const Expr& expr);
  const Value& evaluate(const Literal& node) { return node.value; }
  Value evaluate(const Name& node);
  Value evaluate(const Unary& node);
  Value evaluate(const Binary& node);
  Value evaluate(const Concat& node);
  Value evaluate(const Compare& node);
  Value evaluate(const Conditional& node);
  Value evaluate(const Attribute& node);
  Value evaluate(const Index& node);
  Value evaluate(const Slice& node);
  Value evaluate(const Call& node);
  Value evaluate(const Filter& node);
  Value evaluate(const Test& node);
  Value evaluate(const ListDisplay& node);
  Value evaluate(const DictDisplay& node);
  Value evaluate_or_none(const ExprPtr& expr) { return expr ? evaluate(*expr) : Value(); }
  Args evaluate(const CallArgs& args);
  bool compare_values(CompareOp op, const Value& a, const Value& b);

  Budget budget_;
  Clock clock_;
  std::shared_ptr<Scope> root_, scope_;
  std::string* out_ = nullptr;
  Value block_input_;  // input of the filters in {% filter %} and {% set | %}
  int line_ = 0;
  int depth_ = 0;
  // Objects that may form reference cycles; they are emptied at the end.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> closures_;
  std::vector<std::shared_ptr<Loop>> loops_;
};

struct Interpreter::Door {
  Door(Interpreter& in, const Value* input, const Args& args);

 private:
  Deeper deeper_;
};

}  // namespace skiff::jinja
