// text/jinja/loop.h -- the `loop` variable of a for statement.
#pragma once
#include <optional>

#include "text/jinja/value.h"

namespace skiff::jinja {

struct Scope;
struct ForStatement;

struct Loop {
  Values items;
  size_t index = 0;  // index of the current item
  int nesting = 0;   // nesting of recursive loops; 0 is the outermost one
  int depth = 1;     // as Value::depth
  // The last arguments of loop.changed(). They may refer back to this loop, so the Interpreter
  // keeps such loops and empties them at its end.
  std::optional<Values> last_seen;
  bool kept = false;
  // Implements loop(...) in a recursive loop; cleared when the loop ends, so that no reference
  // cycle remains.
  std::shared_ptr<Scope> scope;
  const ForStatement* statement = nullptr;
};

// Returns index, first, previtem, ...; undefined if there is no such attribute. `self` is the
// Loop's value.
Value loop_attribute(Interpreter& in, const Value& self, const std::string& name);

}  // namespace skiff::jinja
