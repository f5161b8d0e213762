// Objects: members in the schema's order, then members that it does not name.
#include <algorithm>

#include "grammar/regex.h"
#include "grammar/schema/lowering.h"

namespace skiff::grammar {
namespace {

constexpr uint32_t kMaxCounted = 64;  // members that are counted one by one
constexpr size_t kMaxPatterns = 6;    // patternProperties of an object; each pair may overlap

// The names that match a pattern by every reading, and those that match by none; each is made when
// it is asked for.
class NamesByPattern {
 public:
  NamesByPattern(const std::string& pattern, Speller& speller)
      : pattern_(&pattern), speller_(&speller) {}
  ExprId matching() {
    if (!matching_) matching_ = Regex::parse(*pattern_).search(*speller_);
    return *matching_;
  }
  ExprId others() {
    if (!others_)
      others_ =
          speller_->exprs().negate(Regex::parse(*pattern_, Reading::kGreatest).search(*speller_));
    return *others_;
  }

 private:
  const std::string* pattern_;
  Speller* speller_;
  std::optional<ExprId> matching_, others_;
};

}  // namespace

ExprId SchemaLowering::other_members(const Shape& shape, const std::vector<std::string>& declared) {
  const std::vector<std::string> patterns = member_patterns(shape);
  const bool any_name = declared.empty() && patterns.empty() && shape.names.empty();
  const Nodes plain = other_nodes(shape, {}, {});
  if (any_name) {
    const ExprId text = value(plain);
    return text == kNothing ? kNothing : syntax_.member(syntax_.string(), text);
  }
  if (patterns.size() > kMaxPatterns)
    refuse_keyword("patternProperties",
                   fmt::format("patternProperties with more than {} patterns", kMaxPatterns));
  Speller& speller = syntax_.speller();
  std::vector<ExprId> names = {exprs().repeat(speller.any(), 0, kEndless)};
  if (!shape.names.empty())
    names.push_back(string_bodies(shape.names, json_strings()).value_or(kNothing));
  std::vector<ExprId> taken;
  taken.reserve(declared.size());
  for (const std::string& name : declared) taken.push_back(speller.text(name));
  if (!taken.empty()) names.push_back(exprs().negate(exprs().alt(std::move(taken))));
  // A name matches some of the patterns by every reading, and none of the others by any.
  std::vector<NamesByPattern> by_pattern;
  by_pattern.reserve(patterns.size());
  for (const std::string& pattern : patterns) by_pattern.emplace_back(pattern, speller);
  std::vector<ExprId> choices;
  for (size_t subset = 0; subset < size_t{1} << patterns.size(); ++subset) {
    std::vector<bool> matches(patterns.size());
    for (size_t i = 0; i < patterns.size(); ++i) matches[i] = (subset >> i & 1) != 0;
    const Nodes nodes = other_nodes(shape, patterns, matches);
    if (std::any_of(nodes.begin(), nodes.end(),
                    [](Node node) { return node->is_boolean() && !node->get<bool>(); }))
      continue;
    std::vector<ExprId> key = names;
    for (size_t i = 0; i < patterns.size(); ++i)
      key.push_back(matches[i] ? by_pattern[i].matching() : by_pattern[i].others());
    const ExprId body = exprs().both(std::move(key));
    spend(1);
    if (body == kNothing) continue;
    const ExprId text = value(nodes);
    if (text != kNothing) choices.push_back(syntax_.member(syntax_.quoted(body), text));
  }
  return exprs().alt(std::move(choices));
}

std::optional<SchemaLowering::Members> SchemaLowering::members(const Shape& shape) {
  std::vector<std::string> names = declared_names(shape);
  const size_t written = names.size();
  for (const std::string& name : shape.required)
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(written), name) ==
        names.begin() + static_cast<std::ptrdiff_t>(written))
      names.push_back(name);
  Members out;
  for (const std::string& name : names) {
    spend(static_cast<int64_t>(shape.required.size()) / 8 + 1);
    const bool required =
        std::find(shape.required.begin(), shape.required.end(), name) != shape.required.end();
    const bool allowed =
        shape.names.empty() || fits(OrderedJson(name), shape.names, Reading::kLeast);
    const ExprId text = allowed ? value(nodes_of(shape, name)) : kNothing;
    if (text == kNothing && required) return std::nullopt;
    if (text == kNothing) continue;
    out.declared.push_back({syntax_.member(syntax_.quoted_text(name), text), required});
    out.num_required += required ? 1 : 0;
  }
  out.others = other_members(shape, names);
  return out;
}

ExprId SchemaLowering::in_order(const Members& members) {
  const ExprId comma = syntax_.comma();
  const ExprId more = exprs().repeat(exprs().concat(comma, members.others), 0, kEndless);
  // `after`: what may follow where some member stands already; `first`: where none does.
  ExprId after = more, first = exprs().optional(exprs().concat(members.others, more));
  for (auto it = members.declared.rbegin(); it != members.declared.rend(); ++it) {
    const ExprId here = exprs().concat(it->text, after);
    first = it->required ? here : exprs().alt({here, first});
    const ExprId next = exprs().concat(comma, it->text);
    after = exprs().concat(it->required ? next : exprs().optional(next), after);
  }
  return first;
}

// `min` and `max` bound the number of members. Members that the schema does not name may come
// twice, so they are good for one towards `min`.
ExprId SchemaLowering::counted(const Members& members, uint32_t min, uint32_t max) {
  const size_t count = members.declared.size();
  const uint32_t most = std::min(max, kMaxCounted);
  const ExprId comma = syntax_.comma();
  // rest[c]: what may follow after the members so far, of which c are there.
  std::vector<ExprId> rest(most + 1, kNothing);
  for (uint32_t c = 0; c <= most; ++c) {
    if (c + 1 < min) continue;
    const uint32_t least = c < min ? 1 : 0;
    const uint32_t left = max == kEndless ? kEndless : max - c;
    const ExprId more = exprs().concat(comma, members.others);
    if (c > 0) {
      rest[c] = exprs().repeat(more, least, left);
    } else if (left > 0) {
      const uint32_t others = left == kEndless ? kEndless : left - 1;
      rest[c] = exprs().concat(members.others, exprs().repeat(more, 0, others));
    }
    if (c == 0 && least == 0) rest[c] = exprs().alt({kEmpty, rest[c]});
  }
  for (size_t i = count; i-- > 0;) {
    std::vector<ExprId> next(most + 1, kNothing);
    for (uint32_t c = 0; c <= most; ++c) {
      spend(4);
      const auto& member = members.declared[i];
      // Beyond kMaxCounted it no longer matters how many there are.
      const uint32_t then = max == kEndless ? std::min(c + 1, most) : c + 1;
      const ExprId with = then <= most
                              ? exprs().concat({c > 0 ? comma : kEmpty, member.text, rest[then]})
                              : kNothing;
      next[c] = member.required ? with : exprs().alt({with, rest[c]});
    }
    rest = std::move(next);
  }
  return rest[0];
}

ExprId SchemaLowering::object(const Shape& shape) {
  const auto found = members(shape);
  if (!found) return kNothing;
  const bool others = found->others != kNothing;
  const auto declared = static_cast<uint32_t>(found->declared.size());
  uint32_t min = std::max(shape.min_members, found->num_required), max = shape.max_members;
  if (!others) max = max >= declared ? kEndless : max;
  if (min > max || (!others && min > declared)) return kNothing;
  if (min <= found->num_required && max == kEndless)
    return syntax_.enclosed("{", in_order(*found), "}");
  if (min > kMaxCounted || (max != kEndless && max > kMaxCounted))
    refuse_keyword(shape.min_members > kMaxCounted ? "minProperties" : "maxProperties",
                   fmt::format("minProperties or maxProperties of more than {} is not supported",
                               kMaxCounted));
  if (others && min > std::max(found->num_required, 1u))
    refuse_keyword(
        "minProperties",
        "minProperties beside members that the schema does not name is not supported: the same "
        "name might come twice; set additionalProperties to false");
  const ExprId items = counted(*found, min, max);
  return items == kNothing ? kNothing : syntax_.enclosed("{", items, "}");
}

}  // namespace skiff::grammar
