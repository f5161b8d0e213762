#include "grammar/expr.h"

#include <algorithm>

#include "base/check.h"

namespace skiff::grammar {
namespace {

uint64_t mixed(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0x9E3779B97F4A7C15u;
  return h ^ (h >> 31);
}

bool has_children(ExprKind kind) { return kind == ExprKind::kAlt || kind == ExprKind::kBoth; }

}  // namespace

ExprSet::ExprSet(Fuel& fuel) : fuel_(&fuel), slots_(1024, 0) {
  exprs_.push_back({.kind = ExprKind::kNothing});
  exprs_.push_back({.kind = ExprKind::kEmpty, .nullable = true});
  anything_ = repeat(bytes(ByteSet::all()), 0, kEndless);
}

size_t ExprSet::bytes_used() const {
  return exprs_.capacity() * sizeof(Expr) + children_.capacity() * sizeof(ExprId) +
         texts_.capacity() + slots_.capacity() * sizeof(uint32_t);
}

bool ExprSet::equal(const Expr& x, const Expr& expr, std::span<const ExprId> children) const {
  if (x.kind != expr.kind) return false;
  if (has_children(x.kind)) {
    const auto mine = this->children(x);
    return std::equal(mine.begin(), mine.end(), children.begin(), children.end());
  }
  if (x.kind == ExprKind::kBytes) return x.first == expr.first;
  if (x.kind == ExprKind::kLiteral) return text(x) == text(expr);
  return x.a == expr.a && x.b == expr.b && x.min == expr.min && x.max == expr.max;
}

ExprId ExprSet::intern(const Expr& expr, std::span<const ExprId> children) {
  fuel_->burn();
  uint64_t h = mixed(static_cast<uint64_t>(expr.kind) + 1, children.size());
  if (has_children(expr.kind)) {
    for (const ExprId child : children) h = mixed(h, child);
  } else if (expr.kind == ExprKind::kBytes) {
    h = mixed(h, expr.first.hash());
  } else if (expr.kind == ExprKind::kLiteral) {
    h = mixed(h, std::hash<std::string_view>()(text(expr)));
  } else {
    h = mixed(mixed(h, uint64_t{expr.a} << 32 | expr.b), uint64_t{expr.min} << 32 | expr.max);
  }
  const size_t mask = slots_.size() - 1;
  size_t at = h & mask;
  for (; slots_[at] != 0; at = (at + 1) & mask)
    if (equal(exprs_[slots_[at]], expr, children)) return slots_[at];
  const auto id = static_cast<ExprId>(exprs_.size());
  exprs_.push_back(expr);
  if (has_children(expr.kind)) {
    exprs_.back().a = static_cast<uint32_t>(children_.size());
    exprs_.back().b = static_cast<uint32_t>(children.size());
    children_.insert(children_.end(), children.begin(), children.end());
  }
  slots_[at] = id;
  hashes_.push_back(h);
  if (exprs_.size() * 2 > slots_.size()) fill_slots(slots_.size() * 2);
  return id;
}

void ExprSet::forget(const Mark& since) {
  exprs_.resize(since.exprs);
  exprs_.shrink_to_fit();
  hashes_.resize(since.exprs);
  hashes_.shrink_to_fit();
  children_.resize(since.children);
  children_.shrink_to_fit();
  forget_live();
  size_t count = 1024;
  while (count < exprs_.size() * 2) count *= 2;
  slots_ = {};
  fill_slots(count);
}

// `count` is a power of two.
void ExprSet::fill_slots(size_t count) {
  slots_.assign(count, 0);
  const size_t mask = slots_.size() - 1;
  for (ExprId id = 2; id < exprs_.size(); ++id) {
    size_t at = hashes_[id] & mask;
    while (slots_[at] != 0) at = (at + 1) & mask;
    slots_[at] = id;
  }
}

void ExprSet::refine(const ByteSet& set) {
  if (num_classes_ == 256) return;
  // The members of a class that are in the set leave it, unless all of them are.
  std::array<int, 256> target;
  std::array<bool, 256> has_out{};
  target.fill(-1);
  for (int byte = 0; byte < 256; ++byte)
    if (!set.has(static_cast<uint8_t>(byte))) has_out[class_of_[static_cast<size_t>(byte)]] = true;
  for (int byte = 0; byte < 256; ++byte) {
    uint8_t& c = class_of_[static_cast<size_t>(byte)];
    if (!set.has(static_cast<uint8_t>(byte)) || !has_out[c]) continue;
    if (target[c] < 0) target[c] = num_classes_++;
    c = static_cast<uint8_t>(target[c]);
  }
  for (int byte = 255; byte >= 0; --byte)
    byte_of_class_[class_of_[static_cast<size_t>(byte)]] = static_cast<uint8_t>(byte);
}

void ExprSet::refine_text(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (singled_.has(byte)) continue;
    singled_.add(byte);
    ByteSet one;
    one.add(byte);
    refine(one);
  }
}

ExprId ExprSet::bytes(const ByteSet& set) {
  if (set.none()) return kNothing;
  const size_t before = exprs_.size();
  const ExprId id = intern({.kind = ExprKind::kBytes, .first = set}, {});
  if (exprs_.size() != before) refine(set);
  return id;
}

ExprId ExprSet::literal_at(uint32_t at, uint32_t size) {
  if (size == 0) return kEmpty;
  Expr expr{.kind = ExprKind::kLiteral, .a = at, .b = size};
  expr.first.add(static_cast<uint8_t>(texts_[at]));
  return intern(expr, {});
}

ExprId ExprSet::literal(std::string_view text) {
  fuel_->burn(static_cast<int64_t>(text.size()));
  if (text.empty()) return kEmpty;
  const auto [entry, fresh] =
      text_places_.emplace(std::string(text), static_cast<uint32_t>(texts_.size()));
  if (fresh) {
    texts_ += text;
    refine_text(text);
  }
  return literal_at(entry->second, static_cast<uint32_t>(text.size()));
}

ExprId ExprSet::concat(ExprId head, ExprId tail) {
  if (head == kNothing || tail == kNothing) return kNothing;
  if (head == kEmpty) return tail;
  if (tail == kEmpty) return head;
  // Concatenations lean to the right.
  std::vector<ExprId> heads;
  while (exprs_[head].kind == ExprKind::kConcat) {
    heads.push_back(exprs_[head].a);
    head = exprs_[head].b;
  }
  heads.push_back(head);
  for (auto it = heads.rbegin(); it != heads.rend(); ++it) {
    const Expr& x = exprs_[*it];
    const Expr& y = exprs_[tail];
    Expr out{.kind = ExprKind::kConcat,
             .nullable = x.nullable && y.nullable,
             .has_calls = x.has_calls || (x.nullable && y.has_calls),
             .has_both = x.has_both || y.has_both,
             .any_call = x.any_call || y.any_call,
             .a = *it,
             .b = tail,
             .first = x.nullable ? x.first | y.first : x.first};
    tail = intern(out, {});
  }
  return tail;
}

ExprId ExprSet::concat(std::initializer_list<ExprId> parts) {
  ExprId out = kEmpty;
  for (auto it = std::rbegin(parts); it != std::rend(parts); ++it) out = concat(*it, out);
  return out;
}

ExprId ExprSet::joined(const std::vector<ExprId>& parts, ExprId between) {
  ExprId out = kEmpty;
  for (auto it = parts.rbegin(); it != parts.rend(); ++it)
    out = it == parts.rbegin() ? *it : concat({*it, between, out});
  return out;
}

std::vector<ExprId> ExprSet::flattened(ExprKind kind, std::vector<ExprId> ids) const {
  const size_t given = ids.size();
  for (size_t i = 0; i < given; ++i) {
    if (exprs_[ids[i]].kind != kind) continue;
    const auto inner = children(exprs_[ids[i]]);  // two or more
    ids[i] = inner[0];
    ids.insert(ids.end(), inner.begin() + 1, inner.end());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Repetitions of one body whose counts touch become one; a single body is a repetition of 1.
void ExprSet::merge_repeats(std::vector<ExprId>& choices) {
  bool any = false;
  for (const ExprId id : choices) any = any || exprs_[id].kind == ExprKind::kRepeat;
  if (!any) return;
  struct Range {
    ExprId body;
    uint32_t min, max;
  };
  std::vector<Range> ranges;
  std::vector<ExprId> others;
  const auto repeated = [&](ExprId body) {
    return std::any_of(choices.begin(), choices.end(), [&](ExprId id) {
      return exprs_[id].kind == ExprKind::kRepeat && exprs_[id].a == body;
    });
  };
  for (const ExprId id : choices) {
    const Expr& x = exprs_[id];
    if (x.kind == ExprKind::kRepeat)
      ranges.push_back({x.a, x.min, x.max});
    else if (choices.size() < 64 && repeated(id))
      ranges.push_back({id, 1, 1});
    else
      others.push_back(id);
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& x, const Range& y) {
    return std::pair(x.body, x.min) < std::pair(y.body, y.min);
  });
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    Range* last = merged.empty() ? nullptr : &merged.back();
    if (last && last->body == range.body && (last->max == kEndless || range.min <= last->max + 1))
      last->max = std::max(last->max, range.max);
    else
      merged.push_back(range);
  }
  for (const Range& range : merged) others.push_back(repeat(range.body, range.min, range.max));
  std::sort(others.begin(), others.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  choices = std::move(others);
}

// x t | y t becomes (x | y) t. Returns whether anything changed.
bool ExprSet::factor_tails(std::vector<ExprId>& choices) {
  std::vector<std::pair<ExprId, ExprId>> by_tail;
  for (const ExprId id : choices)
    if (exprs_[id].kind == ExprKind::kConcat) by_tail.emplace_back(exprs_[id].b, id);
  std::sort(by_tail.begin(), by_tail.end());
  const auto same = [](const auto& x, const auto& y) { return x.first == y.first; };
  if (std::adjacent_find(by_tail.begin(), by_tail.end(), same) == by_tail.end()) return false;
  std::vector<ExprId> out;
  for (const ExprId id : choices)
    if (exprs_[id].kind != ExprKind::kConcat) out.push_back(id);
  for (size_t i = 0; i < by_tail.size();) {
    size_t end = i + 1;
    while (end < by_tail.size() && by_tail[end].first == by_tail[i].first) ++end;
    std::vector<ExprId> heads;
    for (size_t k = i; k < end; ++k) heads.push_back(exprs_[by_tail[k].second].a);
    out.push_back(end == i + 1 ? by_tail[i].second
                               : concat(alt(std::move(heads)), by_tail[i].first));
    i = end;
  }
  choices = std::move(out);
  return true;
}

ExprId ExprSet::alt(std::vector<ExprId> choices) {
  std::vector<ExprId> flat = flattened(ExprKind::kAlt, std::move(choices));
  fuel_->burn(static_cast<int64_t>(flat.size()));
  if (fuel_->empty()) return kNothing;
  if (factor_tails(flat)) return alt(std::move(flat));
  ByteSet single;
  std::vector<ExprId> kept;
  bool has_empty = false;
  for (const ExprId id : flat) {
    const Expr& x = exprs_[id];
    if (x.kind == ExprKind::kBytes) single |= x.first;
    if (id == kEmpty) has_empty = true;
    if (id == anything_) return anything_;
    if (id != kNothing && id != kEmpty && x.kind != ExprKind::kBytes) kept.push_back(id);
  }
  if (!single.none()) kept.push_back(bytes(single));
  std::sort(kept.begin(), kept.end());
  merge_repeats(kept);
  Expr out{.kind = ExprKind::kAlt};
  for (const ExprId id : kept) out.nullable = out.nullable || exprs_[id].nullable;
  if (has_empty && !out.nullable) {
    if (kept.size() == 1 && exprs_[kept[0]].kind == ExprKind::kRepeat && exprs_[kept[0]].min == 1)
      return repeat(exprs_[kept[0]].a, 0, exprs_[kept[0]].max);
    kept.insert(kept.begin(), kEmpty);
    out.nullable = true;
  }
  if (kept.empty()) return kNothing;
  if (kept.size() == 1) return kept[0];
  for (const ExprId id : kept) {
    const Expr& x = exprs_[id];
    out.has_calls |= x.has_calls, out.has_both |= x.has_both, out.any_call |= x.any_call;
    out.first |= x.first;
  }
  return intern(out, kept);
}

ExprId ExprSet::both(std::vector<ExprId> parts) {
  std::vector<ExprId> flat = flattened(ExprKind::kBoth, std::move(parts));
  fuel_->burn(static_cast<int64_t>(flat.size()));
  std::erase(flat, anything_);
  if (flat.empty()) return anything_;
  if (flat[0] == kNothing || fuel_->empty()) return kNothing;
  if (flat.size() == 1) return flat[0];
  Expr out{.kind = ExprKind::kBoth, .nullable = true, .has_both = true, .first = ByteSet::all()};
  for (const ExprId id : flat) {
    SKIFF_CHECK(!exprs_[id].any_call, "a call of a rule in an intersection");
    out.nullable = out.nullable && exprs_[id].nullable;
    out.first &= exprs_[id].first;
  }
  if (flat[0] == kEmpty) return out.nullable ? kEmpty : kNothing;
  if (out.first.none()) return out.nullable ? kEmpty : kNothing;
  const ExprId id = intern(out, flat);
  return searching_ || live(id) ? id : kNothing;
}

ExprId ExprSet::negate(ExprId id) {
  const Expr& x = exprs_[id];
  SKIFF_CHECK(!x.any_call, "a call of a rule in a complement");
  if (x.kind == ExprKind::kNot) return x.a;
  if (id == kNothing) return anything_;
  if (id == anything_) return kNothing;
  return intern({.kind = ExprKind::kNot,
                 .nullable = !x.nullable,
                 .has_both = true,
                 .a = id,
                 .first = ByteSet::all()},
                {});
}

ExprId ExprSet::repeat(ExprId body, uint32_t min, uint32_t max) {
  if (max == 0 || body == kEmpty) return kEmpty;
  if (body == kNothing) return min == 0 ? kEmpty : kNothing;
  if (exprs_[body].nullable) min = 0;
  if (min == 1 && max == 1) return body;
  const Expr& x = exprs_[body];
  if (x.kind == ExprKind::kRepeat && x.min <= 1 && x.max == kEndless && min <= 1)
    return repeat(x.a, std::min(x.min, min), kEndless);
  if (min == 0 && max == 1) {
    if (x.nullable) return body;
    // The optional form is an alternative, so that it merges with others.
    Expr out{.kind = ExprKind::kAlt,
             .nullable = true,
             .has_calls = x.has_calls,
             .has_both = x.has_both,
             .any_call = x.any_call,
             .first = x.first};
    if (x.kind == ExprKind::kRepeat || x.kind == ExprKind::kAlt) return alt({kEmpty, body});
    const std::array<ExprId, 2> children = {kEmpty, body};
    return intern(out, children);
  }
  return intern({.kind = ExprKind::kRepeat,
                 .nullable = min == 0,
                 .has_calls = x.has_calls,
                 .has_both = x.has_both,
                 .any_call = x.any_call,
                 .a = body,
                 .min = min,
                 .max = max,
                 .first = x.first},
                {});
}

ExprId ExprSet::call(RuleId rule) {
  return intern({.kind = ExprKind::kCall, .has_calls = true, .any_call = true, .a = rule}, {});
}

ExprId ExprSet::seed(RuleId rule) {
  const Expr& x = exprs_[rules_[rule]];
  return intern({.kind = ExprKind::kSeed,
                 .nullable = x.nullable,
                 .has_calls = x.has_calls,
                 .has_both = x.has_both,
                 .any_call = x.any_call,
                 .a = rule,
                 .first = x.first},
                {});
}

ExprId ExprSet::residue(uint32_t modulus, uint32_t remainder) {
  refine_text("0123456789");
  return intern({.kind = ExprKind::kResidue,
                 .nullable = remainder == 0,
                 .a = modulus,
                 .b = remainder,
                 .first = ByteSet::range('0', '9')},
                {});
}

void ExprSet::set_rule(RuleId rule, ExprId expr) {
  if (rules_.size() <= rule) rules_.resize(rule + 1, kNothing);
  rules_[rule] = expr;
}

}  // namespace skiff::grammar
