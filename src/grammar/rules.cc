#include "grammar/rules.h"

#include <algorithm>
#include <functional>

#include "grammar/call_depth.h"
#include "grammar/machine.h"
#include "grammar/refusal.h"

namespace skiff::grammar {
namespace {

struct Fact {
  bool nullable = false, productive = false;
  friend bool operator==(const Fact&, const Fact&) = default;
};

// Facts about rules that follow from each other. What uses an expression is told when a fact about
// it becomes true, so the work is linear, and as nothing recurses, a text of any length is safe.
class Facts {
 public:
  Facts(const ExprSet& exprs, const std::vector<ExprId>& rules)
      : exprs_(exprs), rules_(rules), facts_(exprs.size()) {
    for (ExprId id = 0; id < facts_.size(); ++id)
      if (!exprs_[id].any_call) facts_[id] = {exprs_[id].nullable, id != kNothing};
    std::vector<ExprId> work;
    for (ExprId id = 0; id < facts_.size(); ++id) {
      if (!exprs_[id].any_call) continue;
      each_part(exprs_[id], [&](ExprId part) { users_[part].push_back(id), update(id, part); });
      if (facts_[id] != Fact{}) work.push_back(id);
    }
    while (!work.empty()) {
      const ExprId id = work.back();
      work.pop_back();
      const auto users = users_.find(id);
      if (users == users_.end()) continue;
      for (const ExprId user : users->second)
        if (update(user, id)) work.push_back(user);
    }
  }
  bool nullable(RuleId rule) const { return facts_[rules_[rule]].nullable; }
  bool productive(RuleId rule) const { return facts_[rules_[rule]].productive; }
  bool trivial() const {
    return std::ranges::all_of(
        rules_, [&](ExprId rule) { return !facts_[rule].nullable && facts_[rule].productive; });
  }

 private:
  template <class Visit>
  void each_part(const Expr& x, const Visit& visit) const {
    if (x.kind == ExprKind::kCall) return visit(rules_[x.a]);
    if (x.kind == ExprKind::kAlt) {
      for (const ExprId child : exprs_.children(x)) visit(child);
      return;
    }
    visit(x.a);
    if (x.kind == ExprKind::kConcat) visit(x.b);
  }
  // Takes in what is known of a part; returns whether that says more about `id`.
  bool update(ExprId id, ExprId part) {
    const Expr& x = exprs_[id];
    const Fact before = facts_[id], mine = facts_[part];
    Fact& fact = facts_[id];
    if (x.kind == ExprKind::kConcat) {
      const Fact head = facts_[x.a], tail = facts_[x.b];
      fact = {head.nullable && tail.nullable, head.productive && tail.productive};
    } else {
      const bool none = x.kind == ExprKind::kRepeat && x.min == 0;
      fact.nullable |= mine.nullable || none;
      fact.productive |= mine.productive || none;
    }
    return fact != before;
  }

  const ExprSet& exprs_;
  const std::vector<ExprId> rules_;
  std::vector<Fact> facts_;
  std::unordered_map<ExprId, std::vector<ExprId>> users_;
};

// Writes a call that may be empty as optional, and one that has no word as nothing. The parts of an
// expression have smaller ids than itself, so one pass finds them rewritten.
class Rewriter {
 public:
  Rewriter(ExprSet& exprs, const Facts& facts) : exprs_(exprs), facts_(facts) {
    const auto size = static_cast<ExprId>(exprs.size());
    for (ExprId id = 0; id < size; ++id) done_.push_back(rewritten(id));
  }
  ExprId operator()(ExprId id) const { return done_[id]; }

 private:
  ExprId rewritten(ExprId id) {
    const Expr x = exprs_[id];
    if (!x.any_call) return id;
    if (x.kind == ExprKind::kCall)
      return !facts_.productive(x.a) ? kNothing : facts_.nullable(x.a) ? exprs_.optional(id) : id;
    if (x.kind == ExprKind::kConcat) return exprs_.concat(done_[x.a], done_[x.b]);
    if (x.kind == ExprKind::kRepeat) return exprs_.repeat(done_[x.a], x.min, x.max);
    std::vector<ExprId> choices(exprs_.children(x).begin(), exprs_.children(x).end());
    for (ExprId& choice : choices) choice = done_[choice];
    return exprs_.alt(std::move(choices));
  }

  ExprSet& exprs_;
  const Facts& facts_;
  std::vector<ExprId> done_;
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
      check_fuel();
    }
  }

 private:
  // What follows a first call of `callee` in `caller`.
  ExprId rest(RuleId callee, RuleId caller) const {
    for (const CallOf& call : calls_[caller])
      if (call.rule == callee) return call.rest;
    return kNothing;
  }
  // Returns whether a complete members[i] may be a complete `rule` as it is.
  std::vector<bool> nullable_ways(RuleId rule, const std::vector<RuleId>& members) const {
    std::vector<bool> out(members.size(), false);
    for (size_t i = 0; i < members.size(); ++i) out[i] = members[i] == rule;
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < members.size(); ++i) {
        exprs_.fuel().burn(1 + static_cast<int64_t>(members.size()) / 16);
        check_fuel();
        for (size_t k = 0; k < members.size() && !out[i]; ++k)
          if (out[k] && exprs_[rest(members[i], members[k])].nullable) out[i] = changed = true;
      }
    }
    return out;
  }
  // The expressions grow with the cube of a group.
  void check_fuel() const {
    if (exprs_.fuel().empty()) refuse("the constraint is too complex (its fuel is spent)");
  }

  ExprSet& exprs_;
  const Calls& calls_;
  const std::vector<uint32_t>& groups_;
  std::vector<ExprId>& starts_;
};

// A group that is left-recursive becomes a repetition, so calls within it may cost no depth.
void check_depth(const ExprSet& exprs, const std::vector<ExprId>& rules,
                 const Components& components,
                 const std::unordered_map<RuleId, std::string>& names) {
  if (rules.size() <= kMaxDepth) return;
  std::vector<bool> flat(rules.size());
  for (RuleId rule = 0; rule < rules.size(); ++rule) flat[rule] = components.recursive(rule);
  const CallDepth depth(exprs, rules, flat);
  if (depth.of(rules[0]) <= kMaxDepth) return;
  std::string place;
  for (const RuleId rule : depth.chain(rules[0], kMaxDepth))
    if (const auto name = names.find(rule); name != names.end())
      place = fmt::format(": rule \"{}\" lies deeper", name->second);
  refuse(
      "every text of the constraint needs more than {} rules within each other, the most that are "
      "followed{}; write fewer and longer rules",
      kMaxDepth, place);
}

}  // namespace

std::vector<ExprId> prepared_rules(ExprSet& exprs, std::vector<ExprId> rules,
                                   const std::unordered_map<RuleId, std::string>& names) {
  const Facts facts(exprs, rules);
  if (!facts.productive(0)) refuse("the constraint cannot be satisfied: no finite text fits it");
  if (!facts.trivial()) {
    Rewriter rewrite(exprs, facts);
    for (ExprId& rule : rules) rule = rewrite(rule);
  }
  for (RuleId rule = 0; rule < rules.size(); ++rule) exprs.set_rule(rule, rules[rule]);
  const Calls calls = first_calls(exprs, rules);
  const Components components(calls);
  check_depth(exprs, rules, components, names);
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
