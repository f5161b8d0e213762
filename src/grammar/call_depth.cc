#include "grammar/call_depth.h"

#include <unordered_map>
#include <utility>

namespace skiff::grammar {
namespace {

template <class Visit>
void each_part(const ExprSet& exprs, const std::vector<ExprId>& rules, const Expr& x,
               const Visit& visit) {
  if (x.kind == ExprKind::kCall) return visit(rules[x.a]);
  if (x.kind == ExprKind::kAlt) {
    for (const ExprId child : exprs.children(x)) visit(child);
    return;
  }
  visit(x.a);
  if (x.kind == ExprKind::kConcat) visit(x.b);
}

}  // namespace

// Depths are settled from the least to the greatest (Knuth, "A Generalization of Dijkstra's
// Algorithm", 1977).
CallDepth::CallDepth(const ExprSet& exprs, const std::vector<ExprId>& rules, std::vector<bool> flat)
    : exprs_(exprs),
      flat_(std::move(flat)),
      least_(2 * exprs.size(), kEndlessDepth),
      from_(2 * exprs.size(), 0),
      reached_(1) {
  std::unordered_map<ExprId, std::vector<ExprId>> users;
  for (ExprId id = 0; id < exprs.size(); ++id) {
    const Expr& x = exprs[id];
    if (x.any_call) each_part(exprs, rules, x, [&](ExprId part) { users[part].push_back(id); });
    if (x.any_call ? x.kind != ExprKind::kRepeat || x.min > 0 : id == kNothing) continue;
    for (const bool followed : {false, true}) reach(node(id, followed), 0, node(id, followed));
  }
  for (uint32_t depth = 0; depth < reached_.size(); ++depth)
    while (!reached_[depth].empty()) {
      const NodeId at = reached_[depth].back();
      reached_[depth].pop_back();
      const auto found = users.find(at / 2);
      if (least_[at] != depth || found == users.end()) continue;
      for (const ExprId user : found->second) look_at(user, at / 2);
    }
}

CallDepth::NodeId CallDepth::settled_by(const Expr& x, bool followed, ExprId part) const {
  switch (x.kind) {
    case ExprKind::kCall:
      return node(part, false);
    case ExprKind::kConcat: {
      const NodeId head = node(x.a, true), tail = node(x.b, followed);
      return least_[head] > least_[tail] ? head : tail;
    }
    case ExprKind::kRepeat:
      return node(part, followed || x.max != 1);
    default:
      return node(part, followed);
  }
}

void CallDepth::look_at(ExprId user, ExprId part) {
  const Expr& x = exprs_[user];
  for (const bool followed : {false, true}) {
    const NodeId by = settled_by(x, followed, part);
    if (least_[by] == kEndlessDepth) continue;
    const bool deeper = x.kind == ExprKind::kCall && followed && counts(x);
    reach(node(user, followed), least_[by] + (deeper ? 1 : 0), by);
  }
}

void CallDepth::reach(NodeId at, uint32_t depth, NodeId from) {
  if (depth >= least_[at]) return;
  least_[at] = depth;
  from_[at] = from;
  if (depth >= reached_.size()) reached_.resize(depth + 1);
  reached_[depth].push_back(at);
}

std::vector<RuleId> CallDepth::chain(ExprId root, uint32_t most) const {
  std::vector<RuleId> out;
  NodeId at = node(root, false);
  if (least_[at] == kEndlessDepth) return out;
  const uint32_t whole = least_[at];
  while (from_[at] != at && whole - least_[at] <= most) {
    const Expr& x = exprs_[at / 2];
    if (x.kind == ExprKind::kCall) out.push_back(x.a);
    at = from_[at];
  }
  return out;
}

}  // namespace skiff::grammar
