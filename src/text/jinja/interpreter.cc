#include "text/jinja/interpreter.h"

#include "text/jinja/builtins.h"
#include "text/jinja/print.h"

namespace skiff::jinja {
namespace {

// Real templates stay below 300, recursive ones that print schemas of tools included.
constexpr int kMaxNesting = 3000;
// Scopes are destroyed by recursion, and closures could chain more of them than are ever active.
constexpr int kMaxScopes = 1500;

struct Macro : Callable {
  Macro(const MacroDefinition& d, std::shared_ptr<Scope> s) : definition(d), scope(std::move(s)) {}
  std::string repr() const override { return "<Macro '" + definition.name + "'>"; }
  std::optional<Value> attribute(Budget&, const std::string& name) const override {
    if (name == "name") return Value(definition.name);
    if (name == "caller") return Value(definition.uses_caller);
    if (name == "catch_kwargs") return Value(definition.uses_kwargs);
    if (name == "catch_varargs") return Value(definition.uses_varargs);
    return std::nullopt;
  }
  const MacroDefinition& definition;
  std::shared_ptr<Scope> scope;

 private:
  Value run(Interpreter& in, Args args) override {
    return in.call_macro(definition, scope, std::move(args));
  }
};

}  // namespace

const Value* Scope::find(Budget& budget, const std::string& name) const {
  for (const Scope* scope = this; scope; scope = scope->parent.get()) {
    budget.step(scope->variables.size() / 16);
    for (const auto& [key, value] : scope->variables)
      if (key == name) return &value;
  }
  return nullptr;
}

void Scope::set(Budget& budget, const std::string& name, Value value) {
  budget.step(variables.size() / 16);
  for (auto& [key, old] : variables)
    if (key == name) return void(old = std::move(value));
  budget.make(sizeof(variables[0]) + name.size());
  variables.emplace_back(name, std::move(value));
}

Interpreter::Deeper::Deeper(Interpreter& interpreter, Weight w) : in(interpreter), weight(w) {
  if (in.depth_ >= kMaxNesting)
    fail("macros, loops and expressions are nested too deeply (recursion without end?)");
  in.depth_ += weight;
}

struct Interpreter::Inside {
  Inside(Interpreter& interpreter, std::shared_ptr<Scope> parent)
      : in(interpreter), outer(std::exchange(in.scope_, std::make_shared<Scope>())) {
    in.scope_->depth = parent->depth + 1;
    in.scope_->parent = std::move(parent);
    if (in.scope_->depth <= kMaxScopes) return;
    in.scope_ = std::move(outer);
    fail("more than {} scopes inside one another", kMaxScopes);
  }
  ~Inside() { in.scope_ = std::move(outer); }
  Interpreter& in;
  std::shared_ptr<Scope> outer;
};

Interpreter::Interpreter(const Budget& budget, Clock clock)
    : budget_(budget), clock_(std::move(clock)), root_(std::make_shared<Scope>()), scope_(root_) {}

Interpreter::~Interpreter() {
  for (const auto& space : namespaces_) space->items.clear();
  for (const auto& scope : closures_) scope->variables.clear();
  for (const auto& loop : loops_) loop->last_seen.reset();
}

std::string Interpreter::run(const Body& body) { return captured(body); }

std::shared_ptr<Namespace> Interpreter::make_namespace() {
  budget_.make(256);
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

void Interpreter::keep(const std::shared_ptr<Loop>& loop) {
  budget_.make(sizeof(loop));
  loops_.push_back(loop);
}

Interpreter::Door::Door(Interpreter& in, const Value* input, const Args& args)
    : deeper_(in, kCall) {
  constexpr uint64_t kResult = 64;  // bytes charged for a small result
  in.budget().make(kResult + bytes_of(args));
  in.budget().step(steps_to_read(args) + (input ? steps_to_read(*input) : 0));
}

Value Callable::call(Interpreter& in, Args args) {
  const Interpreter::Door door(in, bound_to(), args);
  return run(in, std::move(args));
}

void Interpreter::write(std::string_view text) {
  budget_.make(text.size());
  if (out_->size() + text.size() > budget_.limits().output)
    fail("the text is larger than {} bytes", budget_.limits().output);
  out_->append(text);
}

// `flow`, if not null, receives how the body ended.
std::string Interpreter::captured(const Body& body, Flow* flow) {
  struct Redirect {
    Redirect(std::string*& o, std::string* to) : out(o), outer(std::exchange(o, to)) {}
    ~Redirect() { out = outer; }
    std::string*& out;
    std::string* outer;
  };
  std::string text;
  const Redirect redirect(out_, &text);
  const Flow ended = execute(body);
  if (flow) *flow = ended;
  return text;
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  const Deeper deeper(*this, kBody);
  for (const Statement& statement : body) {
    budget_.step();
    line_ = statement.line;
    const Flow flow = std::visit([&](const auto& node) { return execute(node); }, statement.node);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Data& node) {
  write(node.text);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Output& node) {
  const Value value = evaluate(*node.value);
  if (const std::string* text = value.as_text())
    write(*text);
  else
    write(to_text(budget_, value));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const IfStatement& node) {
  for (const auto& [condition, body] : node.branches)
    if (truthy(evaluate(*condition))) return execute(body);
  return execute(node.otherwise);
}

Interpreter::Flow Interpreter::execute(const ForStatement& node) {
  loop_over(node, evaluate(*node.iterable), 0);
  return Flow::kNext;
}

Values Interpreter::filtered(const ForStatement& node, Values items) {
  if (!node.condition) return items;
  const Inside inside(*this, scope_);
  Values kept;
  for (Value& item : items) {
    assign(node.target, item);
    if (truthy(evaluate(*node.condition))) kept.push_back(std::move(item));
  }
  return kept;
}

void Interpreter::loop_over(const ForStatement& node, const Value& iterable, int nesting) {
  struct Ended {
    ~Ended() { loop->scope.reset(), loop->last_seen.reset(); }
    std::shared_ptr<Loop> loop;
  };
  const Ended state{std::make_shared<Loop>()};
  Loop& loop = *state.loop;
  loop.items = filtered(node, iterate(budget_, iterable));
  loop.depth = iterable.depth() + 1;
  loop.nesting = nesting;
  loop.scope = scope_;
  loop.statement = &node;
  for (; loop.index < loop.items.size(); ++loop.index) {
    budget_.make(128);
    const Inside inside(*this, loop.scope);
    scope_->set(budget_, "loop", state.loop);
    assign(node.target, loop.items[loop.index]);
    if (execute(node.body) == Flow::kBreak) break;
  }
  if (!loop.items.empty()) return;
  const Inside inside(*this, loop.scope);
  execute(node.otherwise);
}

// Writes the result of a block's filters, which Jinja does not convert to text.
void Interpreter::write_text(const Value& value) {
  if (!value.is_text()) fail("a block gives {} instead of a text", type_name(value));
  write(*value.as_text());
}

std::string Interpreter::run_loop(const ForStatement& loop, const std::shared_ptr<Scope>& scope,
                                  const Value& iterable, int nesting) {
  const Deeper deeper(*this, kBody);
  std::string text;
  std::string* outer = std::exchange(out_, &text);
  const Inside inside(*this, scope);
  loop_over(loop, iterable, nesting);
  out_ = outer;
  return text;
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    if (value.is_none() || value.is_undefined()) fail("cannot unpack {}", type_name(value));
    const Values items = iterate(budget_, value);
    if (items.size() != target.parts.size())
      fail("cannot unpack {} values into {} names", items.size(), target.parts.size());
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) return scope_->set(budget_, target.name, value);
  const Value* object = scope_->find(budget_, target.name);
  Namespace* space = object ? object->as_namespace() : nullptr;
  if (!space) fail("cannot assign attribute on non-namespace object '{}'", target.name);
  budget_.make(64 + space->items.size() * 4);
  for (auto& [key, old] : space->items)
    if (key == target.attribute) return void(old = value);
  space->items.emplace_back(target.attribute, value);
}

Interpreter::Flow Interpreter::execute(const SetStatement& node) {
  assign(node.target, evaluate(*node.value));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const SetBlock& node) {
  Value value;
  Flow flow;
  {
    const Inside inside(*this, scope_);
    value = captured(node.body, &flow);
  }
  if (flow != Flow::kNext) return flow;
  if (node.filter) {
    block_input_ = value;
    value = evaluate(*node.filter);
  }
  assign(node.target, value);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const FilterBlock& node) {
  std::string text;
  Flow flow;
  {
    const Inside inside(*this, scope_);
    text = captured(node.body, &flow);
  }
  if (flow != Flow::kNext) return flow;
  block_input_ = Value(std::move(text));
  write_text(evaluate(*node.filter));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const WithBlock& node) {
  Values values;
  for (const auto& [target, expr] : node.bindings) values.push_back(evaluate(*expr));
  const Inside inside(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(node.bindings[i].first, values[i]);
  return execute(node.body);
}

Interpreter::Flow Interpreter::execute(const Block& node) {
  const Inside inside(*this, node.scoped ? scope_ : root_);
  return execute(node.body);
}

Value Interpreter::macro_value(const MacroDefinition& node) {
  budget_.make(256);
  closures_.push_back(scope_);
  return Value::callable(budget_, std::make_shared<Macro>(node, scope_));
}

Interpreter::Flow Interpreter::execute(const MacroDefinition& node) {
  scope_->set(budget_, node.name, macro_value(node));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const CallBlock& node) {
  const auto& call_node = std::get<Call>(node.call->node);
  const Value callee = evaluate(*call_node.callee);
  Args args = evaluate(call_node.args);
  args.named.emplace_back("caller", macro_value(node.caller));
  write_text(call(callee, std::move(args)));
  return Flow::kNext;
}

Value Interpreter::call_macro(const MacroDefinition& macro, const std::shared_ptr<Scope>& scope,
                              Args args) {
  const Inside inside(*this, scope);
  budget_.make(128);
  const size_t count = macro.parameters.size();
  std::vector<bool> given(count);
  for (size_t i = 0; i < std::min(count, args.positional.size()); ++i) {
    scope_->set(budget_, macro.parameters[i].name, args.positional[i]);
    given[i] = true;
  }
  Pairs rest;
  Value caller = Value::undefined("No caller defined");
  for (auto& [name, value] : args.named) {
    budget_.step(1 + count / 16);
    size_t i = 0;
    while (i < count && macro.parameters[i].name != name) ++i;
    if (i < count && !given[i]) {
      scope_->set(budget_, name, value);
      given[i] = true;
    } else if (name == "caller" && macro.uses_caller) {
      caller = value;
    } else {
      if (!macro.uses_kwargs) fail("macro '{}' takes no keyword argument '{}'", macro.name, name);
      rest.emplace_back(name, value);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const auto& [name, fallback] = macro.parameters[i];
    if (given[i]) continue;
    scope_->set(budget_, name,
                fallback ? evaluate(*fallback)
                         : Value::undefined("parameter '" + name + "' was not provided"));
  }
  if (macro.uses_caller) scope_->set(budget_, "caller", caller);
  if (macro.uses_kwargs) scope_->set(budget_, "kwargs", Value::dict(budget_, std::move(rest)));
  if (args.positional.size() > count && !macro.uses_varargs)
    fail("macro '{}' takes not more than {} argument(s)", macro.name, count);
  if (macro.uses_varargs) {
    const auto first = args.positional.begin() + std::min(count, args.positional.size());
    scope_->set(budget_, "varargs",
                Value::seq(budget_, Seq::Form::kTuple, {first, args.positional.end()}));
  }
  return captured(*macro.body);
}

}  // namespace skiff::jinja
