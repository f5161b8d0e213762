#include "grammar/rules.h"

#include <algorithm>
#include <functional>

#include "grammar/refusal.h"

namespace skiff::grammar {
namespace {

// Facts about rules that follow from each other, found by repetition until nothing changes.
class Facts {
 public:
  Facts(const ExprSet& exprs, const std::vector<ExprId>& rules)
      : exprs_(exprs), nullable_(rules.size(), false), productive_(rules.size(), false) {
    for (bool changed = true; changed;) {
      changed = false;
      seen_.clear();
      for (size_t i = 0; i < rules.size(); ++i) {
        const auto [nullable, productive] = of(rules[i]);
        changed |= nullable != nullable_[i] || productive != productive_[i];
        nullable_[i] = nullable, productive_[i] = productive;
      }
    }
  }
  bool nullable(RuleId rule) const { return nullable_[rule]; }
  bool productive(RuleId rule) const { return productive_[rule]; }
  bool trivial() const {
    return std::find(nullable_.begin(), nullable_.end(), true) == nullable_.end() &&
           std::find(productive_.begin(), productive_.end(), false) == productive_.end();
  }

 private:
  struct Fact {
    bool nullable, productive;
  };
  Fact of(ExprId id) {
    const Expr& x = exprs_[id];
    if (!x.any_call) return {x.nullable, id != kNothing};
    if (const auto known = seen_.find(id); known != seen_.end()) return known->second;
    Fact fact{false, false};
    if (x.kind == ExprKind::kCall) {
      fact = {nullable_[x.a], productive_[x.a]};
    } else if (x.kind == ExprKind::kConcat) {
      const Fact head = of(x.a), tail = of(x.b);
      fact = {head.nullable && tail.nullable, head.productive && tail.productive};
    } else if (x.kind == ExprKind::kRepeat) {
      const Fact body = of(x.a);
      fact = {x.min == 0 || body.nullable, x.min == 0 || body.productive};
    } else {
      for (const ExprId child : exprs_.children(x)) {
        const Fact one = of(child);
        fact.nullable |= one.nullable, fact.productive |= one.productive;
      }
    }
    return seen_[id] = fact;
  }

  const ExprSet& exprs_;
  std::vector<bool> nullable_, productive_;
  std::unordered_map<ExprId, Fact> seen_;
};

// Writes a call that may be empty as optional, and one that has no word as nothing.
class Rewriter {
 public:
  Rewriter(ExprSet& exprs, const Facts& facts) : exprs_(exprs), facts_(facts) {}
  ExprId operator()(ExprId id) {
    const Expr x = exprs_[id];
    if (!x.any_call) return id;
    if (const auto known = done_.find(id); known != done_.end()) return known->second;
    ExprId out = id;
    if (x.kind == ExprKind::kCall) {
      out = !facts_.productive(x.a) ? kNothing : facts_.nullable(x.a) ? exprs_.optional(id) : id;
    } else if (x.kind == ExprKind::kConcat) {
      const ExprId head = (*this)(x.a);
      out = exprs_.concat(head, (*this)(x.b));
    } else if (x.kind == ExprKind::kRepeat) {
      out = exprs_.repeat((*this)(x.a), x.min, x.max);
    } else {
      std::vector<ExprId> choices(exprs_.children(x).begin(), exprs_.children(x).end());
      for (ExprId& choice : choices) choice = (*this)(choice);
      out = exprs_.alt(std::move(choices));
    }
    return done_[id] = out;
  }

 private:
  ExprSet& exprs_;
  const Facts& facts_;
  std::unordered_map<ExprId, ExprId> done_;
};

// The rules that each rule may call before it takes a byte.
using Calls = std::vector<std::vector<CallOf>>;

// Strongly connected components (Tarjan, SIAM J. Comput. 1972), numbered by their first rule.
class Components {
 public:
  explicit Components(const Calls& calls)
      : calls_(calls), index_(calls.size(), 0), low_(calls.size(), 0), of_(calls.size(), kNone) {
    for (RuleId rule = 0; rule < calls.size(); ++rule)
      if (index_[rule] == 0) visit(rule);
  }
  const std::vector<uint32_t>& groups() const { return of_; }
  bool recursive(RuleId rule) const {
    return std::any_of(calls_[rule].begin(), calls_[rule].end(),
                       [&](const CallOf& call) { return of_[call.rule] == of_[rule]; });
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  void visit(RuleId rule) {
    index_[rule] = low_[rule] = ++counter_;
    stack_.push_back(rule);
    for (const CallOf& call : calls_[rule]) {
      if (index_[call.rule] == 0) visit(call.rule);
      if (of_[call.rule] == kNone) low_[rule] = std::min(low_[rule], low_[call.rule]);
    }
    if (low_[rule] != index_[rule]) return;
    for (RuleId member = kNone; member != rule;) {
      member = stack_.back();
      stack_.pop_back();
      of_[member] = rule;
    }
  }

  const Calls& calls_;
  std::vector<uint32_t> index_, low_, of_;
  std::vector<RuleId> stack_;
  uint32_t counter_ = 0;
};

Calls first_calls(ExprSet& exprs, const std::vector<ExprId>& rules) {
  Calls out;
  for (const ExprId rule : rules) out.push_back(exprs.calls_of(rule));
  return out;
}

// The left-corner form: a word of rule A is a word of some member X of A's group that starts with
// no call into the group, and then what leads from a complete X to a complete A.
class LeftCorner {
 public:
  LeftCorner(ExprSet& exprs, const Calls& calls, const std::vector<uint32_t>& groups,
             std::vector<ExprId>& starts)
      : exprs_(exprs), calls_(calls), groups_(groups), starts_(starts) {}

  void rewrite(RuleId rule) {
    std::vector<RuleId> members;
    for (RuleId other = 0; other < calls_.size(); ++other)
      if (groups_[other] == groups_[rule]) members.push_back(other);
    if (members.size() == 1) {
      starts_[rule] =
          exprs_.concat(exprs_.seed(rule), exprs_.repeat(rest(rule, rule), 0, kEndless));
      return;
    }
    const auto base = static_cast<RuleId>(starts_.size());
    const auto nullable = nullable_ways(rule, members);
    const auto way = [&](size_t i) {
      const ExprId call = exprs_.call(base + static_cast<RuleId>(i));
      return nullable[i] ? exprs_.optional(call) : call;
    };
    std::vector<ExprId> choices;
    for (size_t i = 0; i < members.size(); ++i)
      choices.push_back(exprs_.concat(exprs_.seed(members[i]), way(i)));
    starts_[rule] = exprs_.alt(std::move(choices));
    for (const RuleId from : members) {
      std::vector<ExprId> ways = {from == rule ? kEmpty : kNothing};
      for (size_t i = 0; i < members.size(); ++i)
        ways.push_back(exprs_.concat(rest(from, members[i]), way(i)));
      starts_.push_back(exprs_.alt(std::move(ways)));
    }
  }

 private:
  // What follows a first call of `callee` in `caller`.
  ExprId rest(RuleId callee, RuleId caller) const {
    for (const CallOf& call : calls_[caller])
      if (call.rule == callee) return call.rest;
    return kNothing;
  }
  // Whether a complete members[i] may be a complete `rule` as it is.
  std::vector<bool> nullable_ways(RuleId rule, const std::vector<RuleId>& members) const {
    std::vector<bool> out(members.size(), false);
    for (size_t i = 0; i < members.size(); ++i) out[i] = members[i] == rule;
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < members.size(); ++i)
        for (size_t k = 0; k < members.size() && !out[i]; ++k)
          if (out[k] && exprs_[rest(members[i], members[k])].nullable) out[i] = changed = true;
    }
    return out;
  }

  ExprSet& exprs_;
  const Calls& calls_;
  const std::vector<uint32_t>& groups_;
  std::vector<ExprId>& starts_;
};

}  // namespace

std::vector<ExprId> prepared_rules(ExprSet& exprs, std::vector<ExprId> rules) {
  const Facts facts(exprs, rules);
  if (!facts.productive(0)) refuse("the constraint cannot be satisfied: no finite text fits it");
  if (!facts.trivial()) {
    Rewriter rewrite(exprs, facts);
    for (ExprId& rule : rules) rule = rewrite(rule);
  }
  for (RuleId rule = 0; rule < rules.size(); ++rule) exprs.set_rule(rule, rules[rule]);
  const Calls calls = first_calls(exprs, rules);
  const Components components(calls);
  exprs.set_groups(components.groups());
  std::vector<ExprId> starts = rules;
  LeftCorner corner(exprs, calls, components.groups(), starts);
  bool any = false;
  for (RuleId rule = 0; rule < rules.size(); ++rule) {
    if (!components.recursive(rule)) continue;
    corner.rewrite(rule);
    any = true;
  }
  if (!any) return starts;
  const Calls after = first_calls(exprs, starts);
  const Components left(after);
  for (RuleId rule = 0; rule < starts.size(); ++rule)
    if (left.recursive(rule))
      refuse("left recursion through rules that may be empty is not supported");
  return starts;
}

}  // namespace skiff::grammar
