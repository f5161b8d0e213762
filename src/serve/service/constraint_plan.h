// serve/service/constraint_plan.h -- the one constraint that a request's reply follows: the form
// that it asks for, calls in the model's own format, and the reasoning before either. Private to
// the service.
#pragma once
#include <optional>

#include "serve/service/answer_split.h"
#include "serve/service/constraint_compiler.h"
#include "serve/service/service.h"

namespace skiff::service {

struct ConstraintPlan {
  grammar::Constraint constraint;
  std::string field;          // the field of the request that asked for it
  bool calls_are_it = false;  // constraint.text is the structural tag of the calls
};

// What the reply to `request` must follow, less its reasoning; nothing if it is free. `split` may
// be null. Errors name the field, and what the model's format of calls cannot do.
Result<std::optional<ConstraintPlan>> plan_constraint(const Request& request,
                                                      const AnswerSplit* split);

// Sets the constraint of `prepared`, whose prompt and split are complete. `compiler` may be null;
// a request with a constraint is then refused. `in_reasoning`: the reasoning follows it, too.
std::optional<Error> add_constraint(const Request& request, const AnswerSplit* split,
                                    ConstraintCompiler* compiler, bool in_reasoning,
                                    Prepared& prepared);

}  // namespace skiff::service
