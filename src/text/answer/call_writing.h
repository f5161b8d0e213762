// text/answer/call_writing.h -- how a model writes its calls, byte for byte, so that a constraint
// can make it write some: the counterpart of CallFormat, which says how they are read.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/answer/answer_format.h"

namespace skiff::answer {

// begin, then calls with `between` between them, then end. A call: head NAME [digits] arguments
// ARGUMENTS tail. Special tokens are named by their written form.
struct CallWriting {
  std::string_view format;  // the name of the CallFormat
  std::string_view needs;   // only for vocabularies that have this token; empty: for all
  std::string_view begin, head, arguments, tail, between, end;
  std::string_view
      style;  // how arguments are written, as structural tags name it; "json": a JSON object
  bool numbered = false;  // a number follows the name
};

// The first row for the format whose token the vocabulary has; null where the format cannot be
// written under a constraint.
const CallWriting* find_call_writing(const CallFormat& format,
                                     const std::function<bool(std::string_view)>& has_token);
// All rows, for tests.
const std::vector<CallWriting>& call_writings();

struct CallRules {
  bool required = false;  // the answer is calls and nothing else; else free text, too
  bool alone = false;     // no free text, although calls are not required: another form may stand
                          // in their place
  bool one_call = false;
  bool all_schemas = false;  // else tools that are not strict take any JSON object
};

// The structural tag (docs/structured_output.md) of answers that call `tools`, which are as
// OpenAI's API has them. A format "json_schema" in it also has the member "function", the name of
// the tool. Error::field is "tools" for a name that cannot be written.
Result<OrderedJson> call_tag(const CallFormat& format, const CallWriting& writing,
                             const OrderedJson& tools, const CallRules& rules);

// Returns whether a tool asks that its arguments follow its schema.
bool is_strict(const OrderedJson& tool);

}  // namespace skiff::answer
