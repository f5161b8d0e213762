// grammar/call_depth.h -- how many calls of rules must lie within each other in a text, so that a
// constraint that needs more than the machine follows is refused with the place.
#pragma once
#include <vector>

#include "grammar/expr.h"

namespace skiff::grammar {

// A call counts where something follows it, as only then the machine remembers its caller.
class CallDepth {
 public:
  static constexpr uint32_t kEndlessDepth = ~uint32_t{0};  // no finite text

  // Calls of rules that `flat` names count nothing; those that it is too short for count. Takes
  // time linear in the expressions, less a logarithm.
  CallDepth(const ExprSet& exprs, const std::vector<ExprId>& rules, std::vector<bool> flat = {});
  // Returns the least depth of the texts of `root`.
  uint32_t of(ExprId root) const { return least_[node(root, false)]; }
  // Returns the rules that lie within each other in a text of the least depth, from the outermost,
  // up to the first that lies deeper than `most`.
  std::vector<RuleId> chain(ExprId root, uint32_t most) const;

 private:
  using NodeId = uint32_t;  // an expression, at the end of its rule or with something behind it
  static NodeId node(ExprId expr, bool followed) { return 2 * expr + (followed ? 1 : 0); }
  bool counts(const Expr& call) const { return call.a >= flat_.size() || !flat_[call.a]; }
  // The part of an expression that settles its depth, if `part` was reached last.
  NodeId settled_by(const Expr& x, bool followed, ExprId part) const;
  void look_at(ExprId user, ExprId part);
  void reach(NodeId at, uint32_t depth, NodeId from);

  const ExprSet& exprs_;
  const std::vector<bool> flat_;
  std::vector<uint32_t> least_;
  std::vector<NodeId> from_;
  std::vector<std::vector<NodeId>> reached_;  // by depth
};

}  // namespace skiff::grammar
