#include "grammar/schema/lowering.h"

#include <algorithm>
#include <utility>

#include "grammar/call_depth.h"
#include "grammar/machine.h"
#include "grammar/regex.h"
#include "grammar/schema/formats.h"

namespace skiff::grammar {
namespace {

constexpr int kEmptinessDepth = 4;
const std::vector<std::string> kAnnotations;  // no formats

bool anything_goes(Node schema) {
  return schema->is_boolean() ? schema->get<bool>() : schema->is_object() && schema->empty();
}

bool only_reference(Node schema) { return schema->size() == 1 && member_of(schema, "$ref"); }

}  // namespace

SchemaLowering::SchemaLowering(const Document& document, JsonSyntax& syntax, bool strict)
    : document_(document),
      syntax_(syntax),
      expander_(document, syntax.exprs().fuel(), strict,
                [this](const Shape& shape) { return is_empty(shape, kEmptinessDepth); }),
      patterns_(syntax.exprs().fuel()) {}

void SchemaLowering::refuse_keyword(std::string_view keyword, const std::string& what) const {
  throw Refusal(what, document_.pointer(made_, keyword));
}

void SchemaLowering::spend(int64_t units) {
  if (!exprs().fuel().burn(units)) refuse("the schema is too complex (its fuel is spent)");
}

ExprId SchemaLowering::value(const Nodes& schemas) {
  constexpr size_t kMaxDepth = 200;
  spend(8);
  Nodes nodes;
  for (const Node schema : schemas)
    if (!anything_goes(schema) && std::find(nodes.begin(), nodes.end(), schema) == nodes.end())
      nodes.push_back(schema);
  if (nodes.empty()) return syntax_.value();
  if (const auto known = known_.find(nodes); known != known_.end()) return known->second;
  if (const auto open = open_.find(nodes); open != open_.end()) {
    if (!open->second.rule) open->second.rule = reserve_for(nodes.front());
    return exprs().call(*open->second.rule);
  }
  if (open_.size() > kMaxDepth)
    throw Refusal(fmt::format("the schema's values are nested deeper than {}", kMaxDepth),
                  document_.pointer(nodes.front()));
  open_[nodes];
  Nodes outer = std::exchange(made_, nodes);
  ExprId out = made(nodes);
  made_ = std::move(outer);
  if (const auto rule = open_[nodes].rule) out = syntax_.rules().define(*rule, out);
  open_.erase(nodes);
  return known_[nodes] = out;
}

RuleId SchemaLowering::reserve_for(Node schema) {
  const RuleId rule = syntax_.rules().reserve();
  rule_nodes_[rule] = schema;
  return rule;
}

void SchemaLowering::check_depth(ExprId value) const {
  const std::vector<ExprId>& rules = syntax_.rules().rules;
  if (rules.size() <= kMaxDepth) return;
  const CallDepth depth(syntax_.exprs(), rules);
  if (depth.of(value) <= kMaxDepth || depth.of(value) == CallDepth::kEndlessDepth) return;
  std::string pointer;
  for (const RuleId rule : depth.chain(value, kMaxDepth))
    if (const auto made_for = rule_nodes_.find(rule); made_for != rule_nodes_.end())
      pointer = document_.pointer(made_for->second);
  throw Refusal(fmt::format("every value needs more than {} schemas within each other, the most "
                            "that are followed, and this one lies deeper; write fewer of them as "
                            "\"$ref\" to one another",
                            kMaxDepth),
                pointer);
}

ExprId SchemaLowering::made(const Nodes& schemas) {
  if (schemas.size() == 1 && only_reference(schemas[0])) {
    const Node reference = member_of(schemas[0], "$ref");
    if (reference->is_string()) {
      // Checks that the reference ends somewhere; the rule is shared by all that refer to it.
      expander_.expand(schemas[0]);
      const ExprId target = value({document_.resolve(reference->get<std::string>(), schemas[0])});
      if (target == kNothing || exprs()[target].kind == ExprKind::kCall) return target;
      return syntax_.rules().define(reserve_for(schemas[0]), target);
    }
  }
  std::vector<ExprId> choices;
  for (const Shape& one : expander_.expand_all(schemas)) choices.push_back(shape(one));
  spend(static_cast<int64_t>(choices.size()));
  return exprs().alt(std::move(choices));
}

ExprId SchemaLowering::values(const Shape& shape) {
  std::vector<ExprId> choices;
  for (const Node value : *shape.values)
    if (fits_beside_values(*value, shape, Reading::kLeast))
      choices.push_back(syntax_.literal(*value));
  return exprs().alt(std::move(choices));
}

ExprId SchemaLowering::shape(const Shape& shape) {
  if (shape.values) return values(shape);
  std::vector<ExprId> choices;
  if (shape.types & kNullType) choices.push_back(syntax_.word("null"));
  if (shape.types & kBooleanType) {
    choices.push_back(syntax_.word("true"));
    choices.push_back(syntax_.word("false"));
  }
  if (shape.types & kNumberType) choices.push_back(numbers(shape));
  if (shape.types & kStringType)
    choices.push_back(syntax_.quoted(string_body(shape, json_strings())));
  if (shape.types & kArrayType) choices.push_back(array(shape));
  if (shape.types & kObjectType) choices.push_back(object(shape));
  return exprs().alt(std::move(choices));
}

ExprId SchemaLowering::numbers(const Shape& shape) {
  const bool fractions = (shape.types & kFractionType) != 0;
  const bool plain = !shape.range.bounded() && shape.multiples.empty();
  if (plain) return fractions ? syntax_.number() : syntax_.integer();
  std::vector<ExprId> parts = {fractions ? numbers_in(exprs(), shape.range)
                                         : integers_in(exprs(), shape.range)};
  for (const Decimal& step : shape.multiples) {
    if (!step.fraction.empty())
      parts.push_back(numbers_of_digits(exprs(), static_cast<uint32_t>(step.fraction.size())));
    else
      parts.push_back(
          multiples_of(exprs(), static_cast<uint32_t>(std::stoul(step.whole)), fractions));
  }
  return exprs().both(std::move(parts));
}

ExprId SchemaLowering::string_body(const Shape& shape, StringSpelling spelling, Reading reading) {
  const auto& formats = reading == Reading::kLeast ? shape.formats : kAnnotations;
  if (shape.min_length > shape.max_length) return kNothing;
  if (shape.patterns.empty() && formats.empty())
    return exprs().repeat(spelling.character, shape.min_length, shape.max_length);
  Speller& speller = spelling.speller;
  std::vector<ExprId> parts;
  if (shape.min_length > 0 || shape.max_length != kEndless)
    parts.push_back(exprs().repeat(speller.any(), shape.min_length, shape.max_length));
  for (const std::string& pattern : shape.patterns) {
    try {
      parts.push_back(Regex::parse(pattern, reading).search(speller));
    } catch (const Refusal& refusal) {
      refuse_keyword("pattern", refusal.what());
    }
  }
  for (const std::string& format : formats) parts.push_back(format_strings(format, speller));
  const ExprId out = exprs().both(std::move(parts));
  spend(1);
  return out;
}

std::optional<ExprId> SchemaLowering::string_bodies(const Nodes& schemas, StringSpelling spelling) {
  Nodes outer = std::exchange(made_, schemas);
  std::vector<ExprId> choices;
  for (const Shape& shape : expander_.expand_all(schemas)) {
    if (!(shape.types & kStringType)) continue;
    if (!shape.values) {
      choices.push_back(string_body(shape, spelling));
      continue;
    }
    for (const Node value : *shape.values)
      if (value->is_string() && fits(*value, shape, Reading::kLeast))
        choices.push_back(spelling.speller.text(value->get_ref<const std::string&>()));
  }
  made_ = std::move(outer);
  return exprs().alt(std::move(choices));
}

ExprId SchemaLowering::array(const Shape& shape) {
  constexpr size_t kMaxPrefix = 10'000;
  // Elements that have a schema of their own, by their place.
  size_t own = 0;
  for (const Node layer : shape.arrays) {
    const Node items = member_of(layer, "items");
    const Node prefix = items && items->is_array() ? items : member_of(layer, "prefixItems");
    if (prefix) own = std::max(own, prefix->size());
  }
  if (own > kMaxPrefix)
    refuse_keyword("prefixItems", fmt::format("prefixItems with more than {} schemas", kMaxPrefix));
  std::vector<ExprId> elements;
  uint32_t max = shape.max_items;
  for (size_t i = 0; i < own && i < max; ++i) {
    elements.push_back(value(element_nodes(shape, i)));
    if (elements.back() != kNothing) continue;
    elements.pop_back();
    max = static_cast<uint32_t>(i);
  }
  const auto count = static_cast<uint32_t>(elements.size());
  const ExprId rest = max > count ? value(element_nodes(shape, own)) : kNothing;
  if (rest == kNothing) max = std::min(max, count);
  if (shape.min_items > max) return kNothing;
  const auto less = [](uint32_t from, uint32_t what) {
    return from == kEndless ? kEndless : from > what ? from - what : 0;
  };
  // From the end: what follows the first i elements, if there are any.
  const uint32_t first = std::max(count, 1u);
  ExprId tail = exprs().repeat(exprs().concat(syntax_.comma(), rest), less(shape.min_items, first),
                               less(max, first));
  for (uint32_t i = count; i-- > 1;) {
    tail = exprs().concat({syntax_.comma(), elements[i], tail});
    if (i >= shape.min_items) tail = exprs().optional(tail);
  }
  ExprId items = kEmpty;
  if (max > 0) {
    items = exprs().concat(count > 0 ? elements[0] : rest, tail);
    if (shape.min_items == 0) items = exprs().optional(items);
  }
  return syntax_.enclosed("[", items, "]");
}

}  // namespace skiff::grammar
