#include "apps/chat/answer.h"

#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>

#include "apps/chat/renderer.h"
#include "base/load_error.h"
#include "base/queue.h"
#include "base/seconds.h"

namespace skiff::apps {
namespace {

using Clock = std::chrono::steady_clock;

// Receives replies from the service's thread and has a descriptor for poll(). It is shared, because
// a reply under way when the request is cancelled may arrive after stream_answer() has returned.
class ReplyBox {
 public:
  ReplyBox() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) fail_load("eventfd: {}", std::strerror(errno));
  }
  ~ReplyBox() { close(fd_); }
  ReplyBox(const ReplyBox&) = delete;
  ReplyBox& operator=(const ReplyBox&) = delete;

  int fd() const { return fd_; }
  void put(service::Reply reply) {
    replies_.push(std::move(reply));
    eventfd_write(fd_, 1);
  }
  std::vector<service::Reply> take() {
    eventfd_t count = 0;
    eventfd_read(fd_, &count);
    return replies_.drain(/*wait=*/false);
  }

 private:
  const int fd_;
  Queue<service::Reply> replies_;
};

// While it lives, pressed keys are kept for the next prompt but not echoed into the answer.
class NoEcho {
 public:
  explicit NoEcho(bool wanted) : active_(wanted && tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!active_) return;
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
  }
  ~NoEcho() {
    if (active_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  NoEcho(const NoEcho&) = delete;
  NoEcho& operator=(const NoEcho&) = delete;

 private:
  termios before_ = {};
  const bool active_;
};

// Returns whether the prompt ends with an open <think>, as some templates write it.
bool begins_thinking(const text::Tokenizer& tokenizer, const std::vector<Token>& prompt) {
  constexpr std::string_view kOpen = "<think>";
  const size_t last = std::min<size_t>(prompt.size(), 16);
  std::string end = tokenizer.decode(std::span(prompt).last(last), /*skip_special=*/false);
  end.erase(end.find_last_not_of(" \n") + 1);
  return end.ends_with(kOpen);
}

class Streamer {
 public:
  Streamer(ChatScreen& screen, bool thinking)
      : screen_(screen), renderer_(screen.look().colour, thinking) {}

  // Returns true if this was the last reply.
  bool take(const service::Reply& reply) {
    if (!reply.tokens.empty()) {
      last_ = Clock::now();
      if (answer_.usage.completion == 0) first_ = last_;
    }
    answer_.usage = reply.usage;
    answer_.said += reply.text;
    print(renderer_.push(reply.text));
    if (reply.finish != Finish::kNone) answer_.finish = reply.finish;
    answer_.why = reply.why;
    return reply.last;
  }
  void stop(int signal) {
    answer_.finish = Finish::kCancelled;
    answer_.signal = signal;
  }
  ChatAnswer finish() {
    print(renderer_.finish());
    if (!ends_line_) screen_.answer("\n");
    if (answer_.usage.completion > 0) {
      answer_.first_seconds = seconds(first_ - start_);
      answer_.streaming_seconds = seconds(last_ - first_);
    }
    return std::move(answer_);
  }

 private:
  void print(const std::string& rendered) {
    if (rendered.empty()) return;
    screen_.answer(rendered);
    ends_line_ = rendered.ends_with('\n');
  }

  ChatScreen& screen_;
  AnswerRenderer renderer_;
  ChatAnswer answer_;
  bool ends_line_ = true;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point first_{}, last_{};
};

bool stops(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

}  // namespace

double ChatAnswer::tokens_per_second() const {
  return usage.completion > 1 && streaming_seconds > 0 ? (usage.completion - 1) / streaming_seconds
                                                       : 0;
}

ChatAnswer stream_answer(service::Service& service, service::Prepared request, ChatSignals& signals,
                         ChatScreen& screen) {
  Streamer streamer(screen, begins_thinking(service.tokenizer(), request.prompt));
  const NoEcho quiet(screen.look().interactive);
  const auto box = std::make_shared<ReplyBox>();
  const service::RequestId id = service.start(
      std::move(request), [box](service::Reply reply) { box->put(std::move(reply)); });
  for (bool ended = false; !ended;) {
    if (wait_for_either(signals, box->fd()) == Woken::kReadable) {
      for (const service::Reply& reply : box->take()) ended = streamer.take(reply);
      if (!screen.failed()) continue;
    }
    const int signal = screen.failed() ? SIGHUP : signals.take();
    if (signal == SIGTSTP) std::raise(SIGSTOP);
    if (!stops(signal)) continue;
    service.cancel(id);
    streamer.stop(signal);
    ended = true;
  }
  return streamer.finish();
}

}  // namespace skiff::apps
