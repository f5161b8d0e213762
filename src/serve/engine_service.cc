#include "serve/engine_service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_map>

#include "base/log.h"
#include "serve/metrics.h"
#include "serve/prepare.h"
#include "text/detokenizer.h"

namespace skiff {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) ^ device();
}

// splitmix64 (Steele, Lea, Flood 2014): neighbouring inputs give unrelated seeds.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// One of the n sequences of a request. After start() only the output thread touches it.
struct Sequence {
  SeqId id = 0;
  std::unique_ptr<Detokenizer> text;
  std::vector<PositionLogprobs> prompt_logprobs;
  int generated = 0;
  bool ended = false;
  Clock::time_point admitted{}, first_token{}, last_token{};
};

struct Active {
  RequestId id = 0;
  Service::Sink sink;
  Prepared request;
  std::vector<Sequence> sequences;
  int open = 0;
  bool failed = false;
  Usage usage;
  Clock::time_point arrived{};
};

struct Place {
  std::shared_ptr<Active> active;
  int index = 0;
};

}  // namespace

struct EngineService::Impl {
  Impl(ServiceConfig config, EnginePort& engine, std::shared_ptr<EventQueue> events,
       std::shared_ptr<const Tokenizer> tokenizer,
       std::shared_ptr<const ChatTemplate> chat_template)
      : config(std::move(config)),
        engine(engine),
        events(std::move(events)),
        tokenizer(std::move(tokenizer)),
        chat_template(std::move(chat_template)),
        longest(longest_piece(*this->tokenizer)),
        special(*this->tokenizer),
        metrics(this->config.model_name),
        seed(this->config.seed ? this->config.seed : random_seed()) {}

  void run();
  void take(Event& event);
  Reply advance(Active& active, Sequence& sequence, Event& event);
  void append_tokens(const Active& active, Sequence& sequence, Event& event, Reply& reply);
  void measure(Sequence& sequence, const Active& active, int gained);
  void end(Active& active, Sequence& sequence, Reply& reply);
  void refuse(const std::shared_ptr<Active>& active);
  std::shared_ptr<Active> make_active(Prepared request, Sink sink);
  PrepareContext context() const {
    return {.config = config,
            .tokenizer = *tokenizer,
            .chat_template = chat_template.get(),
            .longest_piece = longest,
            .special = &special};
  }

  const ServiceConfig config;
  EnginePort& engine;
  const std::shared_ptr<EventQueue> events;
  const std::shared_ptr<const Tokenizer> tokenizer;
  const std::shared_ptr<const ChatTemplate> chat_template;
  const size_t longest;
  const SpecialText special;
  Metrics metrics;
  const uint64_t seed;
  std::atomic<uint64_t> next_id{1}, next_seed{0};

  std::mutex mutex;
  std::unordered_map<RequestId, std::shared_ptr<Active>> requests;  // guarded by mutex
  std::unordered_map<SeqId, Place> places;                          // guarded by mutex
  bool stopped = false;                                             // guarded by mutex
  std::thread output;
};

void EngineService::Impl::run() {
  for (;;) {
    auto batches = events->drain(/*wait=*/true);
    if (batches.empty() && events->closed()) return;
    for (auto& batch : batches)
      for (Event& event : batch) take(event);
  }
}

// Events of sequences that were cancelled, or stopped here, find no place and are dropped.
void EngineService::Impl::take(Event& event) {
  Place place;
  {
    std::lock_guard lock(mutex);
    const auto found = places.find(event.seq);
    if (found == places.end()) return;
    place = found->second;
  }
  Active& active = *place.active;
  Sequence& sequence = active.sequences[place.index];
  Reply reply = advance(active, sequence, event);
  reply.index = place.index;
  if (reply.text.empty() && reply.tokens.empty() && reply.finish == Finish::kNone) return;
  {
    std::lock_guard lock(mutex);
    if (!requests.contains(active.id)) return;  // cancelled meanwhile
    if (sequence.ended) places.erase(sequence.id);
    if (active.open == 0) requests.erase(active.id);
  }
  active.sink(std::move(reply));
}

Reply EngineService::Impl::advance(Active& active, Sequence& sequence, Event& event) {
  Reply reply;
  if (event.admitted && sequence.admitted == Clock::time_point{}) {
    sequence.admitted = Clock::now();
    active.usage.cached = std::max(active.usage.cached, event.cached);
    metrics.sequence_admitted(seconds(sequence.admitted - active.arrived), active.usage.prompt,
                              event.cached);
  }
  std::move(event.prompt_logprobs.begin(), event.prompt_logprobs.end(),
            std::back_inserter(sequence.prompt_logprobs));
  reply.finish = event.finish;
  reply.why = std::move(event.why);
  append_tokens(active, sequence, event, reply);
  const int gained = static_cast<int>(reply.tokens.size());
  if (gained > 0) measure(sequence, active, gained);
  sequence.generated += gained;
  active.usage.completion += gained;
  if (reply.finish != Finish::kNone) {
    if (!sequence.text->stopped()) reply.text += sequence.text->flush();
    end(active, sequence, reply);
  }
  if (gained > 0 || reply.finish != Finish::kNone)
    reply.prompt_logprobs = std::exchange(sequence.prompt_logprobs, {});
  reply.usage = active.usage;
  return reply;
}

// Text of the new tokens. A stop string ends the reply at the token that completes it: what the
// engine computed beyond is dropped, and the engine is told.
void EngineService::Impl::append_tokens(const Active& active, Sequence& sequence, Event& event,
                                        Reply& reply) {
  const Prepared& request = active.request;
  reply.tokens = std::move(event.tokens);
  reply.logprobs = std::move(event.logprobs);
  for (size_t i = 0; i < reply.tokens.size(); ++i) {
    const Token token = reply.tokens[i];
    const bool stop_token = event.finish == Finish::kStop && i + 1 == reply.tokens.size();
    if (!stop_token || request.include_stop) reply.text += sequence.text->push(token);
    if (sequence.text->stopped()) {
      if (event.finish == Finish::kNone || i + 1 < reply.tokens.size()) engine.cancel(sequence.id);
      reply.tokens.resize(i + 1);
      if (reply.logprobs.size() > i + 1) reply.logprobs.resize(i + 1);
      reply.finish = Finish::kStop;
      reply.stop_reason = sequence.text->stop_found();
      return;
    }
    if (stop_token && std::find(request.eos.begin(), request.eos.end(), token) == request.eos.end())
      reply.stop_reason = token;
  }
}

void EngineService::Impl::measure(Sequence& sequence, const Active& active, int gained) {
  const auto now = Clock::now();
  if (sequence.generated == 0) {
    sequence.first_token = sequence.last_token = now;
    metrics.first_token(seconds(now - active.arrived), seconds(now - sequence.admitted));
    --gained;
  }
  if (gained > 0) metrics.tokens(gained, seconds(now - sequence.last_token));
  sequence.last_token = now;
}

void EngineService::Impl::end(Active& active, Sequence& sequence, Reply& reply) {
  const auto now = Clock::now();
  sequence.ended = true;
  if (reply.finish != Finish::kStop && reply.finish != Finish::kLength) active.failed = true;
  metrics.sequence_ended({.finish = reply.finish,
                          .since_arrival = seconds(now - active.arrived),
                          .since_admission = seconds(now - sequence.admitted),
                          .since_first_token = seconds(now - sequence.first_token),
                          .generated = sequence.generated});
  reply.last = --active.open == 0;
  if (reply.last) metrics.request_ended(!active.failed, seconds(now - active.arrived));
}

std::shared_ptr<Active> EngineService::Impl::make_active(Prepared request, Sink sink) {
  auto active = std::make_shared<Active>();
  active->id = next_id.fetch_add(1);
  active->sink = std::move(sink);
  active->open = request.n;
  active->usage.prompt = static_cast<int>(request.prompt.size());
  active->arrived = Clock::now();
  const SeqId first = next_id.fetch_add(request.n);
  active->sequences.reserve(request.n);
  for (int i = 0; i < request.n; ++i)
    active->sequences.push_back(
        {.id = first + i,
         .text = std::make_unique<Detokenizer>(
             *tokenizer, DetokenizerOptions{.stops = request.stop_strings,
                                            .include_stop = request.include_stop,
                                            .skip_special = request.skip_special,
                                            .min_tokens = request.params.min_tokens}),
         .prompt_logprobs = {}});
  active->request = std::move(request);
  return active;
}

// On the caller's thread: the output thread has ended.
void EngineService::Impl::refuse(const std::shared_ptr<Active>& active) {
  for (int i = 0; i < active->request.n; ++i) {
    Reply reply;
    reply.index = i;
    reply.finish = Finish::kExhausted;
    reply.why = "the server is shutting down";
    reply.usage = active->usage;
    reply.last = i + 1 == active->request.n;
    active->sink(std::move(reply));
  }
}

EngineService::EngineService(ServiceConfig config, EnginePort& engine,
                             std::shared_ptr<EventQueue> events,
                             std::shared_ptr<const Tokenizer> tokenizer,
                             std::shared_ptr<const ChatTemplate> chat_template)
    : impl_(std::make_unique<Impl>(std::move(config), engine, std::move(events),
                                   std::move(tokenizer), std::move(chat_template))) {
  impl_->output = std::thread([impl = impl_.get()] { impl->run(); });
}

EngineService::~EngineService() { stop(); }

Result<Prepared> EngineService::prepare(Request request) const {
  const bool seed_given = request.seed_given;
  auto prepared = prepare_request(std::move(request), impl_->context());
  if (prepared && !seed_given)
    prepared->params.seed = mix(impl_->seed + impl_->next_seed.fetch_add(1));
  return prepared;
}

Result<std::vector<Token>> EngineService::tokenize(const Request& request) const {
  return prompt_tokens(request, impl_->context());
}

RequestId EngineService::start(Prepared request, Sink sink) {
  auto active = impl_->make_active(std::move(request), std::move(sink));
  const RequestId id = active->id;
  const int n = active->request.n;
  impl_->metrics.request_received(active->usage.prompt, active->request.stop.max_tokens, n);
  std::vector<NewSequence> sequences;
  for (int i = 0; i < n; ++i) {
    NewSequence sequence{.id = active->sequences[i].id,
                         .prompt = active->request.prompt,
                         .params = active->request.params,
                         .stop = active->request.stop,
                         .priority = active->request.priority,
                         .cache = active->request.cache};
    sequence.params.seed += static_cast<uint64_t>(i);
    sequences.push_back(std::move(sequence));
  }
  {
    std::unique_lock lock(impl_->mutex);
    if (impl_->stopped) {
      lock.unlock();
      impl_->refuse(active);
      return id;
    }
    impl_->requests.emplace(id, active);
    for (int i = 0; i < n; ++i) impl_->places.emplace(sequences[i].id, Place{active, i});
  }
  for (NewSequence& sequence : sequences) impl_->engine.submit(std::move(sequence));
  return id;
}

void EngineService::cancel(RequestId id) {
  std::shared_ptr<Active> active;
  std::vector<SeqId> running;
  {
    std::lock_guard lock(impl_->mutex);
    const auto found = impl_->requests.find(id);
    if (found == impl_->requests.end()) return;
    active = std::move(found->second);
    impl_->requests.erase(found);
    for (const Sequence& sequence : active->sequences)
      if (impl_->places.erase(sequence.id) > 0) running.push_back(sequence.id);
  }
  for (SeqId sequence : running) {
    impl_->engine.cancel(sequence);
    impl_->metrics.sequence_ended({Finish::kCancelled, 0, 0, 0, 0});
  }
}

const Tokenizer& EngineService::tokenizer() const { return *impl_->tokenizer; }
int EngineService::max_model_len() const { return impl_->config.max_model_len; }

Status EngineService::health() const {
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->stopped) return Error{Code::kExhausted, "the server is shutting down"};
  }
  const double stuck = impl_->engine.stats().seconds_since_progress;
  if (stuck > impl_->config.stuck_seconds)
    return Error{Code::kInternal, fmt::format("the engine has made no step for {:.0f} s", stuck)};
  return ok();
}

ServiceLoad EngineService::load() const {
  const EngineStats stats = impl_->engine.stats();
  const double used = stats.blocks_total - stats.blocks_free;
  return {.running = stats.running,
          .waiting = stats.waiting,
          .kv_used = stats.blocks_total > 0 ? used / stats.blocks_total : 0};
}

std::string EngineService::metrics() const {
  return impl_->metrics.text(impl_->engine.stats(), impl_->config.max_num_seqs);
}

void EngineService::stop() {
  std::vector<RequestId> open;
  {
    std::lock_guard lock(impl_->mutex);
    if (std::exchange(impl_->stopped, true)) return;
    for (const auto& [id, active] : impl_->requests) open.push_back(id);
  }
  for (RequestId id : open) cancel(id);
  impl_->events->close();
  if (impl_->output.joinable()) impl_->output.join();
}

}  // namespace skiff
