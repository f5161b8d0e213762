#include "grammar/schema/expander.h"

#include <algorithm>
#include <memory>

namespace skiff::grammar {
namespace {

constexpr size_t kMaxShapes = 512;

bool is_schema(Node value) { return value->is_object() || value->is_boolean(); }

}  // namespace

void Expander::fail(Node schema, std::string_view keyword, const std::string& why) const {
  std::string pointer = document_.pointer(schema);
  throw Refusal(fmt::format("\"{}\" {}", keyword, why), pointer + "/" + std::string(keyword));
}

Shapes Expander::product(const Shapes& x, const Shapes& y, Node schema) {
  Shapes out;
  for (const Shape& a : x)
    for (const Shape& b : y) {
      if (!fuel_.burn(intersection_work(a, b)))
        throw Refusal("the schema is too complex (its fuel is spent)", document_.pointer(schema));
      if (auto both = intersection(a, b)) out.push_back(std::move(*both));
      if (out.size() > kMaxShapes)
        throw Refusal("the alternatives of this schema multiply to too many",
                      document_.pointer(schema));
    }
  return out;
}

Shapes Expander::expand_all(const Nodes& schemas) {
  Shapes out = {Shape{}};
  for (const Node schema : schemas) out = product(out, expand(schema), schema);
  return out;
}

const Shapes& Expander::expand(Node schema) {
  if (const auto known = known_.find(schema); known != known_.end()) return known->second;
  constexpr size_t kMaxDepth = 200;
  if (!open_.insert(schema).second)
    throw Refusal("the schema refers to itself without taking in anything",
                  document_.pointer(schema));
  // Who probes for emptiness catches refusals, so the set must stay right.
  const std::unique_ptr<std::set<Node>, std::function<void(std::set<Node>*)>> closing(
      &open_, [schema](std::set<Node>* open) { open->erase(schema); });
  if (open_.size() > kMaxDepth)
    throw Refusal("too many schemas within schemas", document_.pointer(schema));
  if (!is_schema(schema))
    throw Refusal("a schema must be an object or a boolean", document_.pointer(schema));
  Shapes out;
  if (schema->is_object())
    out = combined(schema);
  else if (schema->get<bool>())
    out = {Shape{}};
  return known_[schema] = std::move(out);
}

Shapes Expander::any_of(Node schema, Node branches, std::string_view keyword) {
  if (!branches->is_array() || branches->empty())
    fail(schema, keyword, "must be a list of schemas");
  Shapes out;
  for (const OrderedJson& branch : *branches) {
    const Shapes& more = expand(&branch);
    for (const Shape& shape : more) fuel_.burn(copy_work(shape));
    if (fuel_.empty()) fail(schema, keyword, "is too complex (the fuel is spent)");
    out.insert(out.end(), more.begin(), more.end());
    if (out.size() > kMaxShapes) fail(schema, keyword, "has too many alternatives");
  }
  return out;
}

// Exactly one of the branches fits if one does and no two do.
void Expander::check_disjoint(Node schema, Node branches, const Shapes& siblings) {
  std::vector<Shapes> each;
  for (const OrderedJson& branch : *branches)
    each.push_back(product(siblings, expand(&branch), schema));
  for (size_t i = 0; i < each.size(); ++i)
    for (size_t k = i + 1; k < each.size(); ++k)
      for (const Shape& both : product(each[i], each[k], schema))
        if (!is_empty_(both))
          fail(schema, "oneOf",
               fmt::format("is supported where no value fits two branches, but branches {} and {} "
                           "may both fit; write anyOf, or tell them apart by type, const or a "
                           "required property with a const (format does not)",
                           i, k));
}

Shapes Expander::combined(Node schema) {
  Shapes out = {base(schema)};
  if (out[0].types == 0 || (out[0].values && out[0].values->empty())) out.clear();
  if (const Node reference = member_of(schema, "$ref")) {
    if (!reference->is_string()) fail(schema, "$ref", "must be a string");
    out = product(out, expand(document_.resolve(reference->get<std::string>(), schema)), schema);
  }
  if (const Node all = member_of(schema, "allOf")) {
    if (!all->is_array() || all->empty()) fail(schema, "allOf", "must be a list of schemas");
    for (const OrderedJson& part : *all) out = product(out, expand(&part), schema);
  }
  if (const Node any = member_of(schema, "anyOf"))
    out = product(out, any_of(schema, any, "anyOf"), schema);
  if (const Node one = member_of(schema, "oneOf")) {
    const Shapes branches = any_of(schema, one, "oneOf");
    check_disjoint(schema, one, out);
    out = product(out, branches, schema);
  }
  return out;
}

Shape Expander::base(Node schema) {
  Shape shape;
  for (const auto& member : schema->get_ref<const OrderedJson::object_t&>()) {
    fuel_.burn(4);
    const auto& table = keywords();
    const auto known = std::find_if(table.begin(), table.end(),
                                    [&](const Keyword& row) { return row.name == member.first; });
    // What the specification does not name is an annotation.
    if (known == table.end() || !known->handle) continue;
    keyword_ = known->name;
    (this->*known->handle)(schema, &member.second, shape);
  }
  return shape;
}

}  // namespace skiff::grammar
