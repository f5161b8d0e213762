// `skiff chat`: a conversation in the terminal.
#include <atomic>
#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>

#include "apps/commands.h"
#include "apps/signals.h"
#include "base/load_error.h"
#include "base/utf8.h"
#include "serve/engine_service.h"

namespace skiff {
namespace {

constexpr std::string_view kCommandsHelp =
    "  /reset   forget the conversation     /exit   leave (so does Ctrl-D)\n"
    "  a line that ends with \\ goes on      Ctrl-C  stops the answer\n";

// What the terminal's thread waits for: a piece of the answer, or Ctrl-C.
struct Interrupt {};
using Happening = std::variant<Reply, Interrupt>;

class Chat {
 public:
  Chat(Service& service, const Args& args) : service_(service), args_(args) {}

  int run() {
    std::thread watcher([this] { watch(); });
    fmt::print("{}\n", kCommandsHelp);
    std::string line;
    while (!ended_ && read_line(&line)) {
      if (line == "/exit" || line == "/quit") break;
      if (line == "/reset")
        messages_ = OrderedJson::array();
      else if (line == "/help")
        fmt::print("{}", kCommandsHelp);
      else if (line.starts_with("/"))
        fmt::print("unknown command {}\n{}", line, kCommandsHelp);
      else if (!line.empty())
        answer(line);
    }
    stop_waiting();
    watcher.join();
    return 0;
  }

 private:
  void watch() {
    for (int signal; (signal = wait_for_signal()) != 0;) {
      if (answering_)
        happenings_.push(Interrupt{});
      else
        fmt::print("\n/exit or Ctrl-D leaves\n> ");
      std::fflush(stdout);
      if (signal == SIGTERM) ended_ = true;
    }
  }

  static bool read_line(std::string* line) {
    fmt::print("> ");
    std::fflush(stdout);
    line->clear();
    std::string part;
    while (std::getline(std::cin, part)) {
      *line += part;
      if (!line->ends_with('\\')) return true;
      line->back() = '\n';
      fmt::print(". ");
      std::fflush(stdout);
    }
    return !line->empty();
  }

  Request request() const {
    Request request;
    Conversation conversation;
    conversation.messages = messages_;
    request.input = std::move(conversation);
    request.params = sampling_params(args_);
    request.seed_given = args_.given("seed");
    request.stop.max_tokens = static_cast<int>(args_.integer("max-tokens"));
    return request;
  }

  void answer(const std::string& text) {
    messages_.push_back({{"role", "user"}, {"content", utf8_sanitized(text)}});
    answering_ = true;
    const auto id =
        service_.submit(request(), [this](Reply reply) { happenings_.push(std::move(reply)); });
    if (id) {
      const std::string said = stream(*id);
      messages_.push_back({{"role", "assistant"}, {"content", said}});
    } else {
      fmt::print("{}\n", id.error().what);
      messages_.erase(messages_.size() - 1);
    }
    answering_ = false;
    happenings_.drain(/*wait=*/false);
  }

  // Prints pieces as they come; returns the whole text.
  std::string stream(RequestId id) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    Clock::time_point first;
    std::string said;
    int tokens = 0;
    bool stopped = false;
    while (auto happening = happenings_.pop()) {
      if (std::holds_alternative<Interrupt>(*happening)) {
        service_.cancel(id);
        stopped = true;
        break;
      }
      const Reply& reply = std::get<Reply>(*happening);
      if (tokens == 0) first = Clock::now();
      tokens += static_cast<int>(reply.tokens.size());
      said += reply.text;
      fmt::print("{}", reply.text);
      std::fflush(stdout);
      if (!reply.why.empty()) fmt::print("{}", reply.why);
      if (reply.last) break;
    }
    const auto seconds = [](auto span) { return std::chrono::duration<double>(span).count(); };
    const double streaming = seconds(Clock::now() - first);
    fmt::print("\n\x1b[2m[{}{} tokens, first after {:.0f} ms, {:.1f} tokens/s]\x1b[0m\n",
               stopped ? "stopped; " : "", tokens, seconds(first - start) * 1e3,
               streaming > 0 && tokens > 1 ? (tokens - 1) / streaming : 0.0);
    return said;
  }

  Service& service_;
  const Args& args_;
  OrderedJson messages_ = OrderedJson::array();
  Queue<Happening> happenings_;
  std::atomic<bool> answering_{false}, ended_{false};
};

}  // namespace

int run_chat(const Args& args) {
  const std::string folder = model_folder(args);
  std::shared_ptr<const Tokenizer> tokenizer = need_tokenizer(args, folder);
  std::shared_ptr<const ChatTemplate> chat = find_chat_template(args, folder);
  if (!chat) fail_load("{} has no chat template; give one with --chat-template", folder);
  auto events = std::make_shared<EventQueue>();
  const auto llm = Llm::start(engine_config(args, folder), [events](std::vector<Event> batch) {
    events->push(std::move(batch));
  });
  LlmPort port(*llm);
  ServiceConfig config;
  config.max_model_len = llm->config().max_model_len;
  config.vocab_size = llm->model().spec.vocab;
  config.eos = eos_tokens(llm->model(), tokenizer.get());
  EngineService service(config, port, events, tokenizer, chat);
  catch_signals();
  const int code = Chat(service, args).run();
  service.stop();
  llm->stop(/*drain=*/false);
  return code;
}

}  // namespace skiff
