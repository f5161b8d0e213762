// serve/service/engine_testing.h -- a tokenizer of bytes and an engine that repeats its prompt, for
// tests.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "serve/service/engine_service.h"

namespace skiff::service {

// Token = byte; 256 is <s> (put first), 257 is </s>.
class ByteTokenizer : public text::Tokenizer {
 public:
  static constexpr int kBos = 256, kEos = 257;
  ByteTokenizer() {
    for (int i = 0; i < 256; ++i) pieces_.push_back(std::string(1, static_cast<char>(i)));
    pieces_.insert(pieces_.end(), {"<s>", "</s>"});
  }
  std::vector<int32_t> encode(std::string_view text,
                              const text::EncodeOptions& options) const override {
    std::vector<int32_t> out;
    if (options.add_special) out.push_back(kBos);
    while (!text.empty()) {
      int32_t token = static_cast<unsigned char>(text[0]);
      if (options.parse_special)
        for (int32_t special : {kBos, kEos})
          if (text.starts_with(pieces_[special])) token = special;
      out.push_back(token);
      text.remove_prefix(pieces_[token].size());
    }
    return out;
  }
  std::string_view piece(int32_t token) const override {
    return token >= 0 && token < vocab_size() ? std::string_view(pieces_[token]) : "";
  }
  bool is_special(int32_t token) const override { return token >= 256; }
  int vocab_size() const override { return 258; }
  std::optional<int32_t> find(std::string_view text) const override {
    const auto found = std::find(pieces_.begin(), pieces_.end(), text);
    if (found == pieces_.end()) return std::nullopt;
    return static_cast<int32_t>(found - pieces_.begin());
  }
  std::string bos() const override { return "<s>"; }
  std::string eos() const override { return "</s>"; }
  std::string decode(std::span<const int32_t> tokens, bool skip_special) const override {
    std::string out;
    for (int32_t token : tokens)
      if (!skip_special || !is_special(token)) out += piece(token);
    return out;
  }

 private:
  std::vector<std::string> pieces_;
};

// Renders "role:content;" for each message, and the tools and variables if there are any, without
// the last ';' if the final message is continued. Refuses the role "bad".
class PlainTemplate : public text::ChatTemplate {
 public:
  Result<std::string> render(const text::Conversation& conversation) const override {
    std::string out;
    for (const OrderedJson& message : conversation.messages) {
      if (message["role"] == "bad") return Error{Code::kInvalid, "the template refuses role bad"};
      out += message["role"].get<std::string>() + ":" +
             (message["content"].is_string() ? message["content"].get<std::string>() : "") + ";";
    }
    if (conversation.continue_final_message) out.pop_back();
    if (!conversation.tools.is_null()) out += "tools:" + conversation.tools.dump();
    if (!conversation.kwargs.empty()) out += "kwargs:" + conversation.kwargs.dump();
    if (!conversation.add_generation_prompt && !conversation.continue_final_message) out += "end";
    return out;
  }
};

// Repeats the prompt's bytes without BOS, rotated by the seed unless greedy, then </s>; if </s> is
// not a stop token, it repeats them for ever. It makes one token per sequence and turn.
class EchoEngine : public EnginePort {
 public:
  explicit EchoEngine(std::shared_ptr<EventQueue> events) : events_(std::move(events)) {
    thread_ = std::thread([this] { run(); });
  }
  ~EchoEngine() override {
    stop_ = true;
    thread_.join();
  }

  void submit(NewSequence sequence) override {
    std::lock_guard lock(mutex_);
    seen_.push_back(sequence);
    if (refuse_) {
      events_->push({event_of(sequence.id, Finish::kExhausted, "no room")});
      return;
    }
    const SeqId id = sequence.id;
    running_[id] = {.sequence = std::move(sequence), .done = 0};
  }
  void cancel(SeqId id) override {
    std::lock_guard lock(mutex_);
    cancelled_.insert(id);
    if (running_.erase(id) > 0) events_->push({event_of(id, Finish::kCancelled, "")});
  }
  engine::EngineStats stats() const override {
    std::lock_guard lock(mutex_);
    engine::EngineStats stats;
    stats.running = static_cast<int>(running_.size());
    stats.blocks_total = 100;
    stats.blocks_free = 100 - stats.running;
    stats.seconds_since_progress = stuck_;
    return stats;
  }

  int running() const { return stats().running; }
  std::vector<NewSequence> seen() const {
    std::lock_guard lock(mutex_);
    return seen_;
  }
  std::atomic<bool> hold{false};  // makes no tokens while true
  std::atomic<int> turn_microseconds{200};
  std::atomic<double> stuck_{0};
  std::atomic<bool> refuse_{false};

 private:
  struct State {
    NewSequence sequence;
    int done;
  };

  static Event event_of(SeqId id, Finish finish, std::string why) {
    Event event;
    event.seq = id;
    event.finish = finish;
    event.why = std::move(why);
    return event;
  }

  static Token token_at(const NewSequence& s, int index) {
    std::vector<Token> bytes;
    for (Token token : s.prompt)
      if (token < 256) bytes.push_back(token);
    if (bytes.empty()) bytes.push_back('?');
    const bool eos_stops = std::find(s.stop.tokens.begin(), s.stop.tokens.end(),
                                     ByteTokenizer::kEos) != s.stop.tokens.end();
    if (eos_stops && index == static_cast<int>(bytes.size())) return ByteTokenizer::kEos;
    const uint64_t shift = s.params.temperature == 0 ? 0 : s.params.seed % bytes.size();
    return bytes[(index + shift) % bytes.size()];
  }

  static PositionLogprobs logprobs_of(Token token, int count) {
    PositionLogprobs out{.chosen = {token, -0.5f}, .rank = 1, .top = {}};
    for (int i = 0; i < std::min(count, 258); ++i)
      out.top.push_back({(token + i) % 258, -0.5f - static_cast<float>(i)});
    return out;
  }

  Event advance(State& state) {
    const NewSequence& s = state.sequence;
    Event event = event_of(s.id, Finish::kNone, "");
    if (state.done == 0) {
      event.admitted = true;
      if (s.params.prompt_logprobs != kNoLogprobs)
        for (size_t i = 1; i < s.prompt.size(); ++i)
          event.prompt_logprobs.push_back(logprobs_of(s.prompt[i], s.params.prompt_logprobs));
    }
    const Token token = token_at(s, state.done++);
    event.tokens = {token};
    if (s.params.logprobs != kNoLogprobs) event.logprobs = {logprobs_of(token, s.params.logprobs)};
    // Every token but the first had a draft, of which every other is wrong.
    if (s.params.draft_logprobs && state.done > 1)
      event.draft_logprobs = {{0, logprobs_of((token + state.done % 2) % 258, s.params.logprobs)}};
    if (std::find(s.stop.tokens.begin(), s.stop.tokens.end(), token) != s.stop.tokens.end())
      event.finish = Finish::kStop;
    else if (state.done == s.stop.max_tokens)
      event.finish = Finish::kLength;
    return event;
  }

  void run() {
    while (!stop_) {
      std::this_thread::sleep_for(std::chrono::microseconds(turn_microseconds));
      if (hold) continue;
      std::vector<Event> events;
      std::lock_guard lock(mutex_);
      for (auto it = running_.begin(); it != running_.end();) {
        events.push_back(advance(it->second));
        it = events.back().finish == Finish::kNone ? std::next(it) : running_.erase(it);
      }
      if (!events.empty()) events_->push(std::move(events));
    }
  }

  std::shared_ptr<EventQueue> events_;
  mutable std::mutex mutex_;
  std::map<SeqId, State> running_;  // guarded by mutex_
  std::set<SeqId> cancelled_;       // guarded by mutex_
  std::vector<NewSequence> seen_;   // guarded by mutex_
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

inline ServiceConfig echo_config() {
  ServiceConfig config;
  config.model_name = "echo";
  config.max_model_len = 512;
  config.eos = {ByteTokenizer::kEos};
  config.max_num_seqs = 8;
  config.seed = 1;
  config.draft_logprobs = true;
  return config;
}

struct EchoService {
  explicit EchoService(ServiceConfig config = echo_config())
      : engine(events),
        service(std::move(config), engine, events, std::make_shared<ByteTokenizer>(),
                std::make_shared<PlainTemplate>()) {}
  std::shared_ptr<EventQueue> events = std::make_shared<EventQueue>();
  EchoEngine engine;
  EngineService service;
};

}  // namespace skiff::service
