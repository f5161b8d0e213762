// The walk over expressions: derivatives, calls that come first, and whether any word is left.
#include <algorithm>
#include <unordered_set>

#include "grammar/expr.h"

namespace skiff::grammar {

// Every part is derived, even behind an empty one: their order depends on what was made before, and
// the cost must not.
ExprId ExprSet::derive_both(const Expr& expr, uint8_t byte) {
  const std::vector<ExprId> parts(children(expr).begin(), children(expr).end());
  std::vector<ExprId> rest;
  rest.reserve(parts.size());
  for (const ExprId part : parts) rest.push_back(derivative(part, byte));
  return both(std::move(rest));
}

// Appends the terms whose alternative is the derivative.
void ExprSet::collect(ExprId id, uint8_t byte, std::vector<ExprId>& out) {
  for (;;) {
    const Expr x = exprs_[id];
    if (!x.first.has(byte) || !fuel_->burn()) return;
    switch (x.kind) {
      case ExprKind::kNothing:
      case ExprKind::kEmpty:
      case ExprKind::kCall:
        return;
      case ExprKind::kBytes:
        out.push_back(kEmpty);
        return;
      case ExprKind::kLiteral:
        out.push_back(literal_at(x.a + 1, x.b - 1));
        return;
      case ExprKind::kConcat:
        if (exprs_[x.a].first.has(byte)) out.push_back(concat(derivative(x.a, byte), x.b));
        if (!exprs_[x.a].nullable) return;
        id = x.b;
        continue;
      case ExprKind::kAlt:
        for (uint32_t i = 0; i < x.b; ++i)
          if (exprs_[children_[x.a + i]].first.has(byte)) collect(children_[x.a + i], byte, out);
        return;
      case ExprKind::kBoth:
        out.push_back(derive_both(x, byte));
        return;
      case ExprKind::kNot:
        out.push_back(negate(derivative(x.a, byte)));
        return;
      case ExprKind::kRepeat: {
        const uint32_t max = x.max == kEndless ? kEndless : x.max - 1;
        const ExprId rest = repeat(x.a, x.min == 0 ? 0 : x.min - 1, max);
        out.push_back(concat(derivative(x.a, byte), rest));
        return;
      }
      case ExprKind::kSeed:
        id = rules_[x.a];
        continue;
      case ExprKind::kResidue:
        out.push_back(residue(x.a, (10 * x.b + (byte - '0')) % x.a));
        return;
    }
  }
}

ExprId ExprSet::derivative(ExprId id, uint8_t byte) {
  if (!exprs_[id].first.has(byte)) return exprs_[id].kind == ExprKind::kNot ? anything_ : kNothing;
  std::vector<ExprId> terms;
  collect(id, byte, terms);
  if (terms.empty() || fuel_->empty()) return kNothing;
  return terms.size() == 1 ? terms[0] : alt(std::move(terms));
}

void ExprSet::collect_calls(ExprId id, ExprId tail, std::vector<CallOf>& out) {
  for (;;) {
    const Expr x = exprs_[id];
    if (!x.has_calls || !fuel_->burn()) return;
    switch (x.kind) {
      case ExprKind::kCall:
        out.push_back({x.a, tail});
        return;
      case ExprKind::kConcat:
        if (exprs_[x.a].has_calls) collect_calls(x.a, concat(x.b, tail), out);
        if (!exprs_[x.a].nullable) return;
        id = x.b;
        continue;
      case ExprKind::kAlt:
        for (uint32_t i = 0; i < x.b; ++i) collect_calls(children_[x.a + i], tail, out);
        return;
      case ExprKind::kRepeat: {
        const uint32_t max = x.max == kEndless ? kEndless : x.max - 1;
        collect_calls(x.a, concat(repeat(x.a, x.min == 0 ? 0 : x.min - 1, max), tail), out);
        return;
      }
      case ExprKind::kSeed: {
        std::vector<CallOf> all;
        collect_calls(rules_[x.a], tail, all);
        for (const CallOf& call : all)
          if (group_of(call.rule) != group_of(x.a)) out.push_back(call);
        return;
      }
      default:
        return;
    }
  }
}

std::vector<CallOf> ExprSet::calls_of(ExprId id) {
  std::vector<CallOf> all;
  collect_calls(id, kEmpty, all);
  std::stable_sort(all.begin(), all.end(),
                   [](const CallOf& x, const CallOf& y) { return x.rule < y.rule; });
  std::vector<CallOf> out;
  for (size_t i = 0; i < all.size();) {
    std::vector<ExprId> rests;
    size_t end = i;
    while (end < all.size() && all[end].rule == all[i].rule) rests.push_back(all[end++].rest);
    out.push_back({all[i].rule, rests.size() == 1 ? rests[0] : alt(std::move(rests))});
    i = end;
  }
  return out;
}

// Depth first, to any accepting state. All states on the way to it are live; where none is found,
// no state that was seen is.
bool ExprSet::live(ExprId root) {
  if (!exprs_[root].has_both) return root != kNothing;
  if (const auto known = live_.find(root); known != live_.end()) return known->second;
  const bool outer = !searching_;
  searching_ = true;
  struct Visit {
    ExprId id;
    int next_class;
  };
  std::vector<Visit> path = {{root, 0}};
  std::unordered_set<ExprId> seen = {root};
  bool found = exprs_[root].nullable;
  while (!path.empty() && !found && !fuel_->empty()) {
    Visit& top = path.back();
    if (top.next_class == num_classes_) {
      path.pop_back();
      continue;
    }
    const ExprId next = derivative(top.id, byte_of_class(top.next_class++));
    if (next == kNothing || !seen.insert(next).second) continue;
    const auto known = live_.find(next);
    if (known != live_.end() && !known->second) continue;
    path.push_back({next, 0});
    found = exprs_[next].nullable || known != live_.end() || !exprs_[next].has_both;
  }
  if (found)
    for (const Visit& visit : path) live_[visit.id] = true;
  else if (!fuel_->empty())
    for (const ExprId id : seen) live_[id] = false;
  if (outer) searching_ = false;
  return found;
}

bool ExprSet::matches(ExprId id, std::string_view word) {
  for (const char c : word) {
    id = derivative(id, static_cast<uint8_t>(c));
    if (id == kNothing) return false;
  }
  return exprs_[id].nullable;
}

}  // namespace skiff::grammar
