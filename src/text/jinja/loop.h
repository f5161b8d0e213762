// text/jinja/loop.h -- the `loop` variable of a for statement.
#pragma once
#include <optional>

#include "text/jinja/value.h"

namespace skiff::jinja {

struct Scope;
struct ForStatement;

struct Loop {
  Values items;
  size_t index = 0;  // of the item being visited
  int nesting = 0;   // of recursive loops, 0 outermost
  int depth = 1;     // as Value::depth
  // Of loop.changed(). It may lead back to this loop, so the Interpreter keeps such loops and
  // empties them at its end.
  std::optional<Values> last_seen;
  bool kept = false;
  // For loop(...) in a recursive loop; gone when the loop has ended, so nothing refers in circles.
  std::shared_ptr<Scope> scope;
  const ForStatement* statement = nullptr;
};

// index, first, previtem, ...; undefined if there is no such attribute. `self` is the Loop's value.
Value loop_attribute(Interpreter& in, const Value& self, const std::string& name);

}  // namespace skiff::jinja
