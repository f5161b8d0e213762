// grammar/schema/lowering.h -- JSON Schema to rules. Members are written in the order in which the
// schema names them, others after them; which keywords mean what, and which are refused, is told
// in docs/structured_output.md.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "grammar/json_syntax.h"
#include "grammar/schema/expander.h"

namespace skiff::grammar {

// How the characters of strings are written.
struct StringSpelling {
  Speller& speller;
  ExprId character;  // any character, where nothing says which
};

class SchemaLowering {
 public:
  // Both outlive it.
  SchemaLowering(const Document& document, JsonSyntax& syntax, bool strict);

  // The texts of the values that fit all schemas; kNothing if none does. Throws Refusal.
  ExprId value(const Nodes& schemas);
  // The bodies of the strings that fit, as they stand between the quotes, or spelled otherwise.
  std::optional<ExprId> string_bodies(const Nodes& schemas, StringSpelling spelling);
  // Throws Refusal with the pointer of a schema that lies too deep in every text of `value`.
  void check_depth(ExprId value) const;
  Expander& expander() { return expander_; }
  // The schemas for a member `name` of an object.
  Nodes nodes_of(const Shape& shape, const std::string& name, Reading reading = Reading::kLeast) {
    return member_nodes(shape, name, patterns_, reading);
  }

 private:
  struct Open {
    std::optional<RuleId> rule;  // made when the value is needed while it is being made
  };
  ExprId made(const Nodes& schemas);
  RuleId reserve_for(Node schema);
  ExprId shape(const Shape& shape);
  ExprId values(const Shape& shape);
  ExprId numbers(const Shape& shape);
  ExprId string_body(const Shape& shape, StringSpelling spelling,
                     Reading reading = Reading::kLeast);
  StringSpelling json_strings() { return {syntax_.speller(), syntax_.any_character()}; }
  ExprId array(const Shape& shape);
  ExprId object(const Shape& shape);

  // lower_object.cc
  struct Members {
    struct Member {
      ExprId text;
      bool required;
    };
    std::vector<Member> declared;
    ExprId others = kNothing;  // matches one member that is not declared
    uint32_t num_required = 0;
  };
  std::optional<Members> members(const Shape& shape);
  ExprId other_members(const Shape& shape, const std::vector<std::string>& declared);
  ExprId in_order(const Members& members);
  ExprId counted(const Members& members, uint32_t min, uint32_t max);

  // instance.cc. The least reading of a schema is what fits it to every reader; the greatest what
  // fits it to some reader, for whom formats may be annotations.
  bool fits(const OrderedJson& value, const Shape& shape, Reading reading);
  bool fits(const OrderedJson& value, const Nodes& schemas, Reading reading);
  // The same less the shape's own values: who asks takes the value from those.
  bool fits_beside_values(const OrderedJson& value, const Shape& shape, Reading reading);
  bool number_fits(const OrderedJson& value, const Shape& shape, Reading reading);
  bool string_fits(const std::string& text, const Shape& shape, Reading reading);
  bool object_fits(const OrderedJson& value, const Shape& shape, Reading reading);
  // Returns whether no value fits the shape by the greatest reading.
  bool is_empty(const Shape& shape, int depth);

  ExprSet& exprs() { return syntax_.exprs(); }
  // Throws Refusal with the pointer of a keyword of the schemas whose value is being made.
  [[noreturn]] void refuse_keyword(std::string_view keyword, const std::string& what) const;
  void spend(int64_t units);

  const Document& document_;
  JsonSyntax& syntax_;
  Expander expander_;
  PatternFinder patterns_;
  std::map<Nodes, ExprId> known_;
  std::map<Nodes, Open> open_;
  std::map<RuleId, Node> rule_nodes_;  // the schemas that rules were made for
  Nodes made_;                         // the schemas whose value is being made
};

}  // namespace skiff::grammar
