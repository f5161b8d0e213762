// grammar/schema/written_arguments.h -- the arguments of tool calls in notations other than a JSON
// object: each between marks of its own, or as Python writes them.
//
// Their readers (text/answer) take the text of an argument for a string where the tool's schema
// says that its type is one, and for JSON otherwise. So strings stand there as they are, without
// quotes, and may not hold what ends them.
#pragma once
#include <string>
#include <string_view>

#include "grammar/constraint.h"
#include "grammar/rule_set.h"

namespace skiff::grammar {

bool is_argument_style(std::string_view name);
std::string argument_style_names();  // for messages

// The texts of the objects that fit `schema`, in a known style; kNothing if none does. Members come
// in the schema's order; those that it does not name are allowed where it names none. Throws
// Refusal, also for schemas that the notation has no way of following: other types than objects,
// values of whole objects, patternProperties, propertyNames, bounds on the number of members.
ExprId arguments_text(std::string_view schema, std::string_view style, const Constraint& options,
                      RuleSet& rules);

}  // namespace skiff::grammar
