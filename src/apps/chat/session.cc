#include "apps/chat/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "apps/commands.h"

namespace skiff::apps {
namespace {

std::string first_words(const std::string& text) {
  constexpr size_t kShown = 48;
  std::string line = text.substr(0, text.find('\n'));
  if (line.size() <= kShown && line.size() == text.size()) return line;
  size_t end = std::min(line.size(), kShown);
  while (end > 0 && end < line.size() && (line[end] & 0xC0) == 0x80) --end;
  return line.substr(0, end) + "...";
}

std::string plural(size_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::string expanded(const std::string& path) {
  const char* home = path.starts_with("~/") ? std::getenv("HOME") : nullptr;
  return home ? home + path.substr(1) : path;
}

}  // namespace

ChatSession::ChatSession(ChatTools tools, ChatSettings settings, std::string model_name)
    : tools_(tools), settings_(std::move(settings)), model_name_(std::move(model_name)) {}

int ChatSession::run() {
  while (!leaving_ && !tools_.screen.failed()) {
    LineRead line = tools_.lines.read(input_.continues() ? ". " : "> ");
    if (line.end == LineEnd::kInterrupt) {
      interrupt();
      continue;
    }
    interrupts_ = 0;
    const auto input = line.end == LineEnd::kLine ? input_.feed(line.text) : input_.finish();
    if (line.end != LineEnd::kLine && tools_.screen.look().interactive) tools_.screen.say("");
    if (input && line.end != LineEnd::kLeave) take(*input);
    if (line.end != LineEnd::kLine) leaving_ = true;
  }
  return code_;
}

int ChatSession::ask_once(const std::string& text) {
  ask(text);
  return code_;
}

void ChatSession::leave(int code) {
  leaving_ = true;
  if (!tools_.screen.look().interactive) code_ = code;
}

void ChatSession::interrupt() {
  input_.clear();
  if (!tools_.screen.look().interactive) return leave(128 + SIGINT);
  tools_.screen.say("^C");
  if (++interrupts_ == 2) return leave(0);
  tools_.screen.aside("Ctrl-C again, Ctrl-D or /exit leaves");
}

void ChatSession::take(const ChatInput& input) {
  if (input.text.find_first_not_of(" \t\n") == std::string::npos) return;
  tools_.lines.remember(input.text);
  if (!tools_.history.append(input.text) && !std::exchange(history_lost_, true))
    tools_.screen.aside("what you type is not kept: the history file cannot be written");
  if (!input.literal && is_chat_command(input.text)) return command(input.text);
  const bool escaped = !input.literal && input.text.starts_with("//");
  ask(std::string_view(input.text).substr(escaped ? 1 : 0));
}

void ChatSession::command(const std::string& line) {
  const auto parsed = parse_chat_command(line);
  if (!parsed) return tools_.screen.say(parsed.error().what);
  const std::string& argument = parsed->argument;
  switch (parsed->verb) {
    case ChatVerb::kHelp:
      return tools_.screen.say(chat_help());
    case ChatVerb::kReset:
      return reset();
    case ChatVerb::kUndo:
      return undo();
    case ChatVerb::kRegen:
      return answer_again();
    case ChatVerb::kSystem:
      return system(argument);
    case ChatVerb::kSet:
      return set(argument);
    case ChatVerb::kSave:
      return save(expanded(argument));
    case ChatVerb::kLoad:
      return load(expanded(argument));
    case ChatVerb::kStats:
      return tools_.screen.say(stats());
    case ChatVerb::kExit:
      leaving_ = true;
  }
}

void ChatSession::ask(std::string_view text) {
  const ChatConversation before = conversation_;
  conversation_.ask(text);
  attempt_ = 0;
  answer(before);
}

void ChatSession::answer_again() {
  const ChatConversation before = conversation_;
  const bool answered = conversation_.drop_answer();
  if (!conversation_.awaits_answer()) {
    conversation_ = before;
    return tools_.screen.say("there is no question to answer");
  }
  if (answered) ++attempt_;
  if (answered && settings_.temperature() == 0)
    tools_.screen.aside("temperature is 0, so the answer will be the same; /set temperature 0.8");
  answer(before);
}

// `before` is the conversation to restore if no answer comes.
void ChatSession::answer(const ChatConversation& before) {
  auto request = fitted();
  if (!request) {
    conversation_ = before;
    if (!tools_.screen.look().interactive) code_ = 1;
    return;
  }
  const ChatAnswer answer =
      stream_answer(tools_.service, std::move(*request), tools_.signals, tools_.screen);
  if (answer.said.empty() && answer.finish != Finish::kStop)
    conversation_ = before;
  else
    conversation_.answer(answer.said);
  report(answer);
  if (answer.signal == SIGTERM || answer.signal == SIGHUP) leave(0);
  if (answer.signal == SIGINT && !tools_.screen.look().interactive) leave(128 + SIGINT);
}

void ChatSession::report(const ChatAnswer& answer) {
  last_ = answer.usage;
  ++answers_;
  if (answer.usage.completion > 1) {
    tokens_ += answer.usage.completion - 1;
    streaming_seconds_ += answer.streaming_seconds;
  }
  if (answer.finish == Finish::kExhausted) {
    tools_.screen.say(answer.why);
    code_ = tools_.screen.look().interactive ? 0 : 1;
  }
  const int used = answer.usage.prompt + answer.usage.completion;
  const int room = tools_.service.max_model_len();
  std::string how;
  if (answer.finish == Finish::kCancelled)
    how = answer.said.empty() ? "stopped, the question is forgotten; " : "stopped; ";
  else if (answer.finish == Finish::kLength)
    how = used >= room ? "cut: the context is full; " : "cut at max_tokens; ";
  tools_.screen.aside(
      fmt::format("[{}{}, first after {:.0f} ms, {:.1f} tokens/s, context {}/{}]", how,
                  plural(static_cast<size_t>(answer.usage.completion), "token"),
                  answer.first_seconds * 1e3, answer.tokens_per_second(), used, room));
}

// Reserves max_tokens for the answer, but at most a quarter of the context.
bool ChatSession::leaves_room(const service::Prepared& request) const {
  const int context = tools_.service.max_model_len();
  const int asked = settings_.max_tokens();
  const int wanted = std::min(asked > 0 ? asked : context, std::max(1, context / 4));
  return context - static_cast<int>(request.prompt.size()) >= wanted;
}

// Builds the request for the whole conversation and drops the oldest exchanges until it fits.
// Reports what it drops, and fails with a message if nothing is left to drop.
std::optional<service::Prepared> ChatSession::fitted() {
  for (size_t dropped = 0;; ++dropped) {
    service::Request request;
    request.input = conversation_.value();
    settings_.apply(request, attempt_);
    Result<service::Prepared> prepared = tools_.service.prepare(std::move(request));
    const bool too_long = !prepared && prepared.error().field == "input_length";
    const bool fits = prepared && leaves_room(*prepared);
    if (!fits && (prepared || too_long) && conversation_.drop_oldest()) continue;
    if (!prepared) {
      tools_.screen.say(prepared.error().what);
      return std::nullopt;
    }
    if (dropped > 0)
      tools_.screen.say(
          fmt::format("(the context of {} tokens is full: the oldest {} forgotten; "
                      "/reset starts anew)",
                      tools_.service.max_model_len(),
                      dropped == 1 ? "exchange is" : fmt::format("{} exchanges are", dropped)));
    return std::move(*prepared);
  }
}

void ChatSession::undo() {
  const auto question = conversation_.undo();
  tools_.screen.say(question ? fmt::format("forgotten: {}", first_words(*question))
                             : "there is nothing to undo");
}

void ChatSession::reset() {
  conversation_.reset();
  tools_.screen.say(conversation_.system().empty()
                        ? "the conversation is forgotten"
                        : "the conversation is forgotten; the system message stays");
}

void ChatSession::system(const std::string& text) {
  if (!text.empty()) conversation_.set_system(text == "-" ? std::string_view() : text);
  const std::string now = conversation_.system();
  tools_.screen.say(now.empty() ? "there is no system message" : "system message: " + now);
}

void ChatSession::set(const std::string& argument) {
  const size_t space = argument.find_first_of(" \t=");
  const std::string name = argument.substr(0, space);
  if (name.empty()) return tools_.screen.say(settings_.table());
  const size_t value = argument.find_first_not_of(" \t=", name.size());
  if (value != std::string::npos)
    if (const Status status = settings_.set(name, argument.substr(value)); !status)
      return tools_.screen.say(status.error().what);
  const auto shown = settings_.show(name);
  tools_.screen.say(shown ? *shown : shown.error().what);
}

void ChatSession::save(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !files_.contains(path))
    return tools_.screen.say(fmt::format("{} exists; choose another name or remove it", path));
  std::ofstream file(path, std::ios::binary);
  file << (path.ends_with(".md") ? conversation_.to_markdown("A conversation with " + model_name_)
                                 : conversation_.to_json());
  file.close();
  if (!file) return tools_.screen.say(fmt::format("{} cannot be written", path));
  files_.insert(path);
  tools_.screen.say(
      fmt::format("{} saved to {}", plural(conversation_.num_messages(), "message"), path));
}

void ChatSession::load(const std::string& path) {
  try {
    auto loaded = ChatConversation::from(read_conversation(path));
    if (!loaded) return tools_.screen.say(fmt::format("{}: {}", path, loaded.error().what));
    conversation_ = std::move(*loaded);
  } catch (const LoadError& e) {
    return tools_.screen.say(e.what());
  }
  attempt_ = 0;
  files_.insert(path);
  tools_.screen.say(fmt::format(
      "{} loaded from {}{}", plural(conversation_.num_messages(), "message"), path,
      conversation_.awaits_answer() ? "; the last one waits for an answer (/regen)" : ""));
}

std::string ChatSession::stats() const {
  const double rate = streaming_seconds_ > 0 ? tokens_ / streaming_seconds_ : 0;
  return fmt::format(
      "  conversation         {}, {}\n"
      "  last prompt          {} tokens, {} of them from the cache\n"
      "  context              {} of {} tokens\n"
      "  answers              {}, {:.1f} tokens/s\n",
      plural(conversation_.num_exchanges(), "exchange"),
      plural(conversation_.num_messages(), "message"), last_.prompt, last_.cached,
      last_.prompt + last_.completion, tools_.service.max_model_len(), answers_, rate);
}

}  // namespace skiff::apps
