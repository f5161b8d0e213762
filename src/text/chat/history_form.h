// text/chat/history_form.h -- how a chat template reads the tool calls of earlier answers, found
// out by rendering a small conversation with it.
#pragma once
#include <optional>

#include "base/json.h"
#include "text/jinja/template.h"

namespace skiff::text {

// Most templates print arguments with `tojson` or walk through them, and need an object; some
// join them to other text (DeepSeek-V3, functionary). Most print the content of a message with
// calls, if it has one; some take only a message whose content is none for one with calls.
struct HistoryForm {
  bool text_arguments = false;
  bool null_content = false;  // where there are calls and no content
};

// The first form in which the template shows a call with its arguments as JSON or, member by
// member, in marks of its own; the default where none does. `special` are the variables of special
// tokens. Renders at most four times, each bounded.
HistoryForm find_history_form(const jinja::Template& chosen, const OrderedJson& special,
                              const jinja::Clock& clock);

// Returns whether a message has tool calls.
bool has_calls(const OrderedJson& messages);

// The messages in that form, at the expense of the rendering's budget; nothing if they can stay as
// they are. Takes arguments that are objects and contents that are "", null or absent. Returns
// kInvalid where the budget does not allow it.
Result<std::optional<OrderedJson>> in_history_form(const OrderedJson& messages,
                                                   const HistoryForm& form, jinja::Budget& budget);

}  // namespace skiff::text
