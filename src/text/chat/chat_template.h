// text/chat/chat_template.h -- renders a conversation as the prompt text that its model was trained
// on.
#pragma once
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace skiff::text {

// Messages and tools stay JSON, as the client sent them: templates read whatever keys they know,
// and print tools with their keys in the client's order (parse_ordered_json).
struct Conversation {
  OrderedJson messages = OrderedJson::array();
  OrderedJson tools = nullptr;
  // chat_template_kwargs: more variables for the template. They must not hold messages, tools,
  // add_generation_prompt or continue_final_message; they may replace special tokens.
  OrderedJson kwargs = OrderedJson::object();
  bool add_generation_prompt = true;
  // The prompt ends inside the last message, whose text the reply continues; excludes
  // add_generation_prompt. As in Hugging Face transformers: the conversation is rendered without
  // generation prompt and cut after the last place where the text of the last message stands,
  // without the white space around it where the template dropped that.
  bool continue_final_message = false;
};

// Immutable after load; safe from any thread.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // Returns kInvalid for a conversation that the template refuses (raise_exception) or cannot
  // render, and for a final message that cannot be continued.
  virtual Result<std::string> render(const Conversation& conversation) const = 0;
  // Returns this template with another text: the model's template that `choice` names, or else
  // `choice` itself. Special tokens stay.
  virtual Result<std::string> render_with(const std::string& choice,
                                          const Conversation& conversation) const;
  // Returns the family of a built-in template; empty if the template came from a file or text.
  virtual std::string_view builtin_family() const { return {}; }
  // Returns the texts of all templates, one after the other, for who looks for marks in them.
  virtual std::string source() const { return {}; }
};

// Variables that a client's chat_template_kwargs must not set: those that the server sets itself,
// special tokens, functions of the language, and options of the call that would set them.
std::span<const std::string_view> reserved_template_variables();
// Returns the first of these names that `kwargs` holds; `documents` is not among them.
std::optional<std::string_view> find_reserved_variable(const OrderedJson& kwargs);

// The templates of the folder, from the first of these that exist: chat_template.jinja ("default")
// and additional_chat_templates/NAME.jinja; "chat_template" of tokenizer_config.json; of
// chat_template.json; a built-in one (builtin_templates.h), chosen with the help of config.json in
// `config_dir`, if that is not `model_dir`. Where there are several, "tool_use" is used when there
// are tools, else "default".
// `override_text` wins when not empty: the name of one of these, a template, or a template's file.
// kNotFound if there is none.
// bos_token, eos_token and the other special tokens of tokenizer_config.json and
// special_tokens_map.json are variables.
Result<std::unique_ptr<ChatTemplate>> load_chat_template(const std::string& model_dir,
                                                         const std::string& override_text = "",
                                                         const std::string& config_dir = "");

// For tests and tools: makes a ChatTemplate of any text, with `special` as extra variables. `clock`
// is the clock of strftime_now(); the system's if empty.
Result<std::unique_ptr<ChatTemplate>> make_chat_template(std::string text, const Json& special,
                                                         std::function<std::time_t()> clock = {});

}  // namespace skiff::text
