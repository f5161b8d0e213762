// text/chat_template.h -- a conversation to the prompt text that its model was trained on.
#pragma once
#include <ctime>
#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace skiff {

// Messages and tools stay JSON, as the client sent them: templates read whatever keys they know,
// and print tools with their keys in the client's order (parse_ordered_json).
struct Conversation {
  OrderedJson messages = OrderedJson::array();
  OrderedJson tools = nullptr;
  OrderedJson kwargs =
      OrderedJson::object();  // chat_template_kwargs: more variables for the template
  bool add_generation_prompt = true;
  // The prompt ends inside the last message, whose text the reply continues; excludes
  // add_generation_prompt.
  bool continue_final_message = false;
};

// Immutable after load; safe from any thread.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // kInvalid for what the template itself refuses (raise_exception) or cannot render.
  virtual Result<std::string> render(const Conversation& conversation) const = 0;
};

// The template of chat_template.jinja, tokenizer_config.json or chat_template.json in the folder;
// `override_text` (a template or the path of a file with one) wins when not empty. Where a model
// names several, "default" is used, or "tool_use" when there are tools. kNotFound if there is none.
// bos_token, eos_token and the other special tokens of tokenizer_config.json are variables.
Result<std::unique_ptr<ChatTemplate>> load_chat_template(const std::string& model_dir,
                                                         const std::string& override_text = "");

// For tests and tools: any template text, with `special` as extra variables. `clock` is what
// strftime_now() tells, the system's if empty.
Result<std::unique_ptr<ChatTemplate>> make_chat_template(std::string text, Json special,
                                                         std::function<std::time_t()> clock = {});

}  // namespace skiff
