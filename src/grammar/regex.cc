#include "grammar/regex.h"

#include <algorithm>

#include "grammar/refusal.h"
#include "grammar/regex_node.h"

namespace skiff::grammar {
namespace {

ExprId lower(const RegexNode& node, Speller& speller) {
  ExprSet& exprs = speller.exprs();
  if (!exprs.fuel().burn()) refuse("the regular expression is too complex (its fuel is spent)");
  switch (node.kind) {
    case RegexKind::kCharacters:
      return speller.one(node.characters);
    case RegexKind::kSequence: {
      ExprId out = kEmpty;
      for (auto it = node.parts.rbegin(); it != node.parts.rend(); ++it)
        out = exprs.concat(lower(**it, speller), out);
      return out;
    }
    case RegexKind::kChoice: {
      std::vector<ExprId> choices;
      choices.reserve(node.parts.size());
      for (const auto& part : node.parts) choices.push_back(lower(*part, speller));
      return exprs.alt(std::move(choices));
    }
    case RegexKind::kRepeat:
      return exprs.repeat(lower(*node.parts[0], speller), node.min, node.max);
    case RegexKind::kBegin:
    case RegexKind::kEnd:
      break;
  }
  refuse("regular expression: ^ or $ inside a pattern is not supported");
}

bool is_anchor(const RegexNode& node) {
  return node.kind == RegexKind::kBegin || node.kind == RegexKind::kEnd;
}

// Returns whether each alternative of the part is that anchor and nothing else.
bool is_only(const RegexNode& node, RegexKind anchor) {
  if (is_anchor(node) || !node.anchors) return node.kind == anchor;
  return std::ranges::all_of(node.parts, [&](const auto& part) { return is_only(*part, anchor); });
}

// Refuses anchors within an alternative. `first`, `last`: nothing but anchors of that end stands
// before or behind the node.
void check_anchors(const RegexNode& node, bool first, bool last) {
  if (!node.anchors) return;
  if ((node.kind == RegexKind::kBegin && !first) || (node.kind == RegexKind::kEnd && !last))
    refuse("regular expression: ^ or $ inside a pattern is not supported");
  const bool sequence = node.kind == RegexKind::kSequence;
  size_t ends = node.parts.size();  // from here on, all parts are $
  while (ends > 0 && is_only(*node.parts[ends - 1], RegexKind::kEnd)) --ends;
  for (size_t i = 0; i < node.parts.size(); ++i) {
    check_anchors(*node.parts[i], first, last && (!sequence || i + 1 >= ends));
    if (sequence) first = first && is_only(*node.parts[i], RegexKind::kBegin);
  }
}

using Sequence = std::vector<const RegexNode*>;

// The alternatives of a sequence, with groups that hold anchors multiplied out. The next part of
// the sequence is the last of `left`.
void spread(Sequence done, Sequence left, ExprSet& exprs, std::vector<Sequence>& out) {
  constexpr size_t kMaxAlternatives = 1000;
  while (!left.empty()) {
    if (!exprs.fuel().burn()) refuse("the regular expression is too complex (its fuel is spent)");
    const RegexNode* node = left.back();
    left.pop_back();
    if (!node->anchors || is_anchor(*node)) {
      done.push_back(node);
    } else if (node->kind == RegexKind::kSequence) {
      for (auto part = node->parts.rbegin(); part != node->parts.rend(); ++part)
        left.push_back(part->get());
    } else {
      for (const auto& part : node->parts) {
        Sequence rest = left;
        rest.push_back(part.get());
        exprs.fuel().burn(static_cast<int64_t>(done.size() + rest.size()));
        spread(done, std::move(rest), exprs, out);
      }
      return;
    }
    if (out.size() > kMaxAlternatives) refuse("regular expression: too many anchored alternatives");
  }
  out.push_back(std::move(done));
}

// `around`: what may stand before and behind a match; `last`: behind one that ends in $.
struct Surroundings {
  ExprId around = kEmpty, last = kEmpty;
};

ExprId anchored(const RegexNode& root, Speller& speller, Surroundings allowed) {
  ExprSet& exprs = speller.exprs();
  std::vector<Sequence> alternatives;
  spread({}, {&root}, exprs, alternatives);
  std::vector<ExprId> choices;
  for (const Sequence& parts : alternatives) {
    auto begin = parts.begin(), end = parts.end();
    ExprId before = allowed.around, after = allowed.around;
    for (; begin != end && (*begin)->kind == RegexKind::kBegin; ++begin) before = kEmpty;
    for (; begin != end && (*(end - 1))->kind == RegexKind::kEnd; --end) after = allowed.last;
    ExprId out = after;
    while (end != begin) out = exprs.concat(lower(**--end, speller), out);
    choices.push_back(exprs.concat(before, out));
  }
  return exprs.alt(std::move(choices));
}

}  // namespace

Regex::Regex(std::unique_ptr<RegexNode> root, Reading reading)
    : root_(std::move(root)), reading_(reading) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex Regex::parse(std::string_view pattern, Reading reading) {
  auto root = parse_regex(pattern, reading);
  check_anchors(*root, true, true);
  return {std::move(root), reading};
}

ExprId Regex::whole(Speller& speller) const { return anchored(*root_, speller, {}); }

ExprId Regex::search(Speller& speller) const {
  ExprSet& exprs = speller.exprs();
  // Python's $ also matches before a line end that is the last character.
  const ExprId line_end =
      reading_ == Reading::kLeast ? kEmpty : exprs.optional(speller.one({{'\n', '\n'}}));
  return anchored(*root_, speller,
                  {.around = exprs.repeat(speller.any(), 0, kEndless), .last = line_end});
}

}  // namespace skiff::grammar
