// Loads chat templates for the commands, and implements `skiff tokenize --chat`, which turns
// conversations into prompts.
#include <fstream>
#include <iterator>

#include "apps/commands.h"
#include "base/load_error.h"
#include "base/log.h"

namespace skiff::apps {
namespace {

bool read_flag(const OrderedJson& value, const std::string& path, const std::string& key) {
  if (!value.is_boolean()) fail_load("{}: \"{}\" must be true or false", path, key);
  return value.get<bool>();
}

}  // namespace

std::shared_ptr<const text::ChatTemplate> find_chat_template(const Args& args,
                                                             const std::string& folder) {
  auto loaded =
      text::load_chat_template(tokenizer_folder(args, folder), args.text("chat-template"), folder);
  if (!loaded && loaded.error().code == Code::kNotFound && !args.given("chat-template"))
    return nullptr;
  if (!loaded) throw LoadError(loaded.error().what);
  if (const std::string_view family = (*loaded)->builtin_family(); !family.empty())
    spdlog::info(
        "the model has no chat template: using the built-in one of {} (--chat-template replaces "
        "it)",
        family);
  return std::move(*loaded);
}

text::Conversation read_conversation(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_load("{}: cannot be read", path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  auto parsed = parse_ordered_json(text);
  if (!parsed) fail_load("{}: {}", path, parsed.error().what);
  if (!parsed->is_object() || !parsed->contains("messages"))
    fail_load("{}: expected an object with \"messages\"", path);
  text::Conversation conversation;
  if (parsed->contains("continue_final_message"))
    conversation.continue_final_message =
        read_flag((*parsed)["continue_final_message"], path, "continue_final_message");
  conversation.add_generation_prompt = !conversation.continue_final_message;
  for (const auto& [key, value] : parsed->items()) {
    if (key == "messages")
      conversation.messages = value;
    else if (key == "tools")
      conversation.tools = value;
    else if (key == "add_generation_prompt")
      conversation.add_generation_prompt = read_flag(value, path, key);
    else if (key != "continue_final_message")
      conversation.kwargs[key] = value;
  }
  return conversation;
}

int render_conversation(const Args& args, const std::string& folder) {
  const std::string path = args.text("chat");
  const auto chat = find_chat_template(args, folder);
  if (!chat) fail_load("{}: the model has no chat template; give one with --chat-template", folder);
  text::Conversation conversation = read_conversation(path);
  if (args.given("generation-prompt"))
    conversation.add_generation_prompt = args.on("generation-prompt");
  const auto text = chat->render(conversation);
  if (!text) fail_load("{}: {}", path, text.error().what);
  fmt::print("{}", *text);
  return 0;
}

}  // namespace skiff::apps
