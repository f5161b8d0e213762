// text/jinja/template.h -- a template of the Jinja language (3.1, with trim_blocks, lstrip_blocks
// and loop controls), run in a sandbox: no file, no attribute of the host and no unbounded work
// is reachable from it. Not supported: inheritance, imports and autoescaping.
#pragma once
#include <span>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/interpreter.h"

namespace skiff::jinja {

// Immutable after parse; safe from any thread.
class Template {
 public:
  // The text has at most 1 MiB. Returns kInvalid with "line N: what" on an error.
  static Result<Template> parse(const std::string& text);
  // `variables` is an object. `clock` is the time for strftime_now(), in local time.
  Result<std::string> render(const OrderedJson& variables, const Clock& clock,
                             const Limits& limits = {}) const;
  // The last of several members with the same name counts.
  struct Variable {
    std::string name;
    const OrderedJson* value;
  };
  Result<std::string> render(std::span<const Variable> variables, const Clock& clock,
                             const Limits& limits = {}) const {
    return render(variables, clock, Budget(limits));
  }
  // With what a budget has left, where work for the rendering was done ahead of it.
  Result<std::string> render(std::span<const Variable> variables, const Clock& clock,
                             const Budget& budget) const;

  const std::string& source() const { return source_; }

 private:
  Template(Body body, std::string source)
      : body_(std::make_unique<Body>(std::move(body))), source_(std::move(source)) {}
  std::unique_ptr<const Body> body_;
  std::string source_;
};

// Writes a value as the filter tojson does, which is as Python writes JSON, at the expense of the
// budget. Returns kInvalid where that does not allow it.
Result<std::string> json_of(const OrderedJson& value, Budget& budget);

}  // namespace skiff::jinja
