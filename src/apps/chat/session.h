// apps/chat/session.h -- runs a conversation in the terminal: it reads lines, carries out commands
// and prints answers. It runs on one thread; only replies come from another.
#pragma once
#include <set>
#include <string>

#include "apps/chat/answer.h"
#include "apps/chat/commands.h"
#include "apps/chat/conversation.h"
#include "apps/chat/history_file.h"
#include "apps/chat/input.h"
#include "apps/chat/line_source.h"
#include "apps/chat/settings.h"

namespace skiff::apps {

// The objects that a session works with and does not own.
struct ChatTools {
  service::Service& service;
  ChatSignals& signals;
  LineSource& lines;
  const HistoryFile& history;
  ChatScreen& screen;
};

class ChatSession {
 public:
  ChatSession(ChatTools tools, ChatSettings settings, std::string model_name);

  // An empty system text means that there is none.
  void set_system(const std::string& text) { conversation_.set_system(text); }
  const ChatConversation& conversation() const { return conversation_; }

  // Runs until the input ends, /exit, a signal, or an output that cannot be written. Returns the
  // exit code: 0, or, where the input is no terminal, 130 after Ctrl-C and 1 after a question
  // without an answer.
  int run();
  // Asks one question and reads no commands. Returns the same exit codes.
  int ask_once(const std::string& text);

 private:
  void interrupt();
  void take(const ChatInput& input);
  void command(const std::string& line);
  void ask(std::string_view text);
  void answer_again();
  void answer(const ChatConversation& before);
  void report(const ChatAnswer& answer);
  std::optional<service::Prepared> fitted();
  bool leaves_room(const service::Prepared& request) const;
  void undo();
  void reset();
  void system(const std::string& text);
  void set(const std::string& argument);
  void save(const std::string& path);
  void load(const std::string& path);
  std::string stats() const;
  void leave(int code);

  ChatTools tools_;
  ChatSettings settings_;
  const std::string model_name_;
  ChatConversation conversation_;
  ChatInputReader input_;
  uint64_t attempt_ = 0;         // attempts at the last question
  int interrupts_ = 0;           // Ctrl-C at the prompt in a row, with no line in between
  std::set<std::string> files_;  // saved or loaded here: /save may overwrite them
  service::Usage last_;          // usage of the last answer
  int answers_ = 0;
  double tokens_ = 0, streaming_seconds_ = 0;  // counted after each answer's first token
  bool leaving_ = false, history_lost_ = false;
  int code_ = 0;
};

}  // namespace skiff::apps
