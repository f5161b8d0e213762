// grammar/schema/expander.h -- schemas as unions of shapes: references followed, applicators
// combined. Every keyword that cannot be honoured is refused here.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "grammar/schema/shape.h"

namespace skiff::grammar {

// A value fits the schema if it fits one of the shapes.
using Shapes = std::vector<Shape>;

class Expander {
 public:
  // Decides whether no value fits a shape by any reading of its patterns and formats; false where
  // it cannot tell.
  using Emptiness = std::function<bool(const Shape&)>;

  Expander(const Document& document, Fuel& fuel, bool strict, Emptiness is_empty)
      : document_(document), fuel_(fuel), strict_(strict), is_empty_(std::move(is_empty)) {}

  // Throws Refusal with the pointer of the keyword.
  const Shapes& expand(Node schema);
  // What fits all of them.
  Shapes expand_all(const Nodes& schemas);

 private:
  using Handler = void (Expander::*)(Node schema, Node value, Shape& shape);
  struct Keyword {
    std::string_view name;
    Handler handle;  // null: says nothing about the value, or is read with another keyword
  };
  static const std::vector<Keyword>& keywords();

  [[noreturn]] void fail(Node schema, std::string_view keyword, const std::string& why) const;
  Shape base(Node schema);
  Shapes combined(Node schema);
  Shapes product(const Shapes& x, const Shapes& y, Node schema);
  Shapes any_of(Node schema, Node branches, std::string_view keyword);
  void check_disjoint(Node schema, Node branches, const Shapes& siblings);
  uint32_t count(Node schema, Node value, std::string_view keyword) const;
  void check_number(Node schema, Node value) const;
  void check_constant(Node schema, const OrderedJson& value) const;
  void check_text(Node schema, const std::string& text) const;
  void check_exclusive(Node schema, Node value) const;
  void check_schema(Node schema, Node value, std::string_view keyword) const;
  void check_schemas(Node schema, Node value, std::string_view keyword) const;

  void type(Node, Node, Shape&);
  void enumeration(Node, Node, Shape&);
  void constant(Node, Node, Shape&);
  void minimum(Node, Node, Shape&);
  void maximum(Node, Node, Shape&);
  void exclusive_minimum(Node, Node, Shape&);
  void exclusive_maximum(Node, Node, Shape&);
  void multiple_of(Node, Node, Shape&);
  void min_length(Node, Node, Shape&);
  void max_length(Node, Node, Shape&);
  void pattern(Node, Node, Shape&);
  void format(Node, Node, Shape&);
  void elements(Node, Node, Shape&);
  void min_items(Node, Node, Shape&);
  void max_items(Node, Node, Shape&);
  void unique_items(Node, Node, Shape&);
  void members(Node, Node, Shape&);
  void required(Node, Node, Shape&);
  void property_names(Node, Node, Shape&);
  void min_members(Node, Node, Shape&);
  void max_members(Node, Node, Shape&);
  void negation(Node, Node, Shape&);
  void condition(Node, Node, Shape&);
  void dependent(Node, Node, Shape&);
  void unevaluated(Node, Node, Shape&);
  void never(Node, Node, Shape&);
  void identifier(Node, Node, Shape&);

  const Document& document_;
  Fuel& fuel_;
  bool strict_;
  Emptiness is_empty_;
  std::map<Node, Shapes> known_;
  std::set<Node> open_;
  std::string_view keyword_;  // the schema's keyword that is being read
};

}  // namespace skiff::grammar
