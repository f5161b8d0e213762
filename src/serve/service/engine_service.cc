#include "serve/service/engine_service.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

#include "base/log.h"
#include "base/random.h"
#include "base/seconds.h"
#include "serve/service/metrics.h"
#include "serve/service/prepare.h"
#include "text/detokenizer.h"

namespace skiff {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Clock::time_point kNever = Clock::time_point::max();

// One of the n sequences of a request. After start() only the output thread touches it, but for
// what the service's mutex guards.
struct Sequence {
  SeqId id = 0;
  std::unique_ptr<Detokenizer> text;
  std::vector<PositionLogprobs> prompt_logprobs;
  int generated = 0;
  bool ended = false;
  bool waiting = true;  // for its first place in the batch; guarded by the service's mutex
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
  // Guarded by the service's mutex.
  bool waiting = true;  // none of its sequences has had a place yet
  Clock::time_point deadline = kNever;
};

struct Place {
  std::shared_ptr<Active> active;
  int index = 0;
};

// What the engine gets. The prompt is of no more use here; the last sequence takes it.
std::vector<NewSequence> sequences_of(Active& active) {
  std::vector<NewSequence> sequences;
  const size_t n = active.sequences.size();
  for (size_t i = 0; i < n; ++i) {
    NewSequence sequence{
        .id = active.sequences[i].id,
        .prompt = i + 1 < n ? active.request.prompt : std::move(active.request.prompt),
        .params = active.request.params,
        .stop = active.request.stop,
        .priority = active.request.priority,
        .cache = active.request.cache};
    sequence.params.seed += i;
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

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
        metrics(this->config.model_name, this->config.cache_info),
        seed(this->config.seed ? this->config.seed : random_seed()),
        admission(this->config.admission) {}

  void run();
  void take(Event& event);
  void tell(const Place& place, Event& event);
  void give_up(const Place& place);
  void cancel(RequestId id);
  Reply advance(Active& active, Sequence& sequence, Event& event);
  void append_tokens(const Active& active, Sequence& sequence, Event& event, Reply& reply);
  void measure(Sequence& sequence, const Active& active, int gained);
  void end(Active& active, Sequence& sequence, Reply& reply);
  void refuse(const std::shared_ptr<Active>& active);

  // Admission and deadlines; with mutex held, but for expire().
  void open(const std::shared_ptr<Active>& active);
  void close(Active& active);
  void note(Active& active, Sequence& sequence, const Event& event);
  void stop_waiting(Sequence& sequence, const Active& active, Clock::time_point now);
  void set_deadline(Active& active);
  double seconds_allowed(const Active& active) const;
  Clock::time_point next_deadline();
  std::shared_ptr<Active> take_expired(Clock::time_point now, std::vector<bool>* open, Reply* why);
  void tell_held_text(Active& active, const std::vector<bool>& open);
  void expire();

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
  Admission admission;                                              // guarded by mutex
  std::set<std::pair<Clock::time_point, RequestId>> deadlines;      // guarded by mutex
  bool stopped = false;                                             // guarded by mutex
  std::thread output;
};

void EngineService::Impl::run() {
  pthread_setname_np(pthread_self(), "output");
  for (;;) {
    auto batch = events->wait_until(next_deadline());
    if (batch.empty() && events->closed()) return;
    for (Event& event : batch) take(event);
    try {
      expire();
    } catch (const std::exception& e) {
      spdlog::error("the end of a late request could not be reported: {}", escaped(e.what()));
    }
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
    note(*place.active, place.active->sequences[place.index], event);
  }
  try {
    tell(place, event);
  } catch (const std::exception& e) {
    spdlog::error("a reply could not be made: {}", escaped(e.what()));
    give_up(place);
  }
}

// A failure while a reply is made, for want of memory for instance, ends that request alone.
void EngineService::Impl::give_up(const Place& place) {
  cancel(place.active->id);
  Reply reply;
  reply.index = place.index;
  reply.finish = Finish::kCancelled;
  reply.usage = place.active->usage;
  try {
    place.active->sink(std::move(reply));
  } catch (const std::exception&) {
    // Its client hears of it when the sink goes.
  }
}

void EngineService::Impl::tell(const Place& place, Event& event) {
  Active& active = *place.active;
  Sequence& sequence = active.sequences[place.index];
  Reply reply = advance(active, sequence, event);
  reply.index = place.index;
  if (reply.text.empty() && reply.tokens.empty() && reply.finish == Finish::kNone) return;
  {
    std::lock_guard lock(mutex);
    if (!requests.contains(active.id)) return;  // cancelled meanwhile
    if (sequence.ended) places.erase(sequence.id);
    if (active.open == 0) close(active);
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
  if (reply.finish == Finish::kExhausted) metrics.refused(reply.refusal);
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
  if (!reply.last) return;
  int longest = 0;
  for (const Sequence& other : active.sequences) longest = std::max(longest, other.generated);
  metrics.request_ended(!active.failed, seconds(now - active.arrived), longest);
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
  metrics.refused(Refusal::kStopping);
  for (int i = 0; i < active->request.n; ++i) {
    Reply reply;
    reply.index = i;
    reply.finish = Finish::kExhausted;
    reply.why = "the server is shutting down";
    reply.refusal = Refusal::kStopping;
    reply.usage = active->usage;
    reply.last = i + 1 == active->request.n;
    active->sink(std::move(reply));
  }
}

// With mutex held.
void EngineService::Impl::open(const std::shared_ptr<Active>& active) {
  requests.emplace(active->id, active);
  admission.opened(active->arrived);
  for (size_t i = 0; i < active->sequences.size(); ++i)
    admission.waits(active->arrived, active->usage.prompt);
  set_deadline(*active);
  if (active->deadline != kNever && deadlines.begin()->second == active->id) events->wake();
}

// With mutex held. The request is forgotten: it has ended, or is given up.
void EngineService::Impl::close(Active& active) {
  const auto now = Clock::now();
  for (Sequence& sequence : active.sequences) stop_waiting(sequence, active, now);
  deadlines.erase({active.deadline, active.id});
  admission.closed(now);
  requests.erase(active.id);
}

// With mutex held.
void EngineService::Impl::stop_waiting(Sequence& sequence, const Active& active,
                                       Clock::time_point now) {
  if (std::exchange(sequence.waiting, false)) admission.gave_up(now, active.usage.prompt);
}

// With mutex held: who waits no longer.
void EngineService::Impl::note(Active& active, Sequence& sequence, const Event& event) {
  if (!event.admitted || !sequence.waiting) return;
  sequence.waiting = false;
  admission.admitted(Clock::now(), active.usage.prompt);
  if (!std::exchange(active.waiting, false)) return;
  set_deadline(active);
}

// Seconds from end to end; 0: any number.
double EngineService::Impl::seconds_allowed(const Active& active) const {
  const double most = admission.limits().request_seconds, wanted = active.request.timeout_seconds;
  if (most == 0 || wanted == 0) return std::max(most, wanted);
  return std::min(most, wanted);
}

// With mutex held.
void EngineService::Impl::set_deadline(Active& active) {
  const auto after = [&](double seconds) {
    return active.arrived +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  deadlines.erase({active.deadline, active.id});
  active.deadline = kNever;
  if (const double allowed = seconds_allowed(active); allowed > 0) active.deadline = after(allowed);
  if (const double wait = admission.limits().waiting_seconds; active.waiting && wait >= 0)
    active.deadline = std::min(active.deadline, after(wait));
  if (active.deadline != kNever) deadlines.emplace(active.deadline, active.id);
}

Clock::time_point EngineService::Impl::next_deadline() {
  std::lock_guard lock(mutex);
  return deadlines.empty() ? kNever : deadlines.begin()->first;
}

// A request whose time is over, forgotten by the service; `open` says which of its sequences run or
// wait, `why` what its client should hear. Null if there is none.
std::shared_ptr<Active> EngineService::Impl::take_expired(Clock::time_point now,
                                                          std::vector<bool>* open, Reply* why) {
  std::lock_guard lock(mutex);
  if (deadlines.empty() || deadlines.begin()->first > now) return nullptr;
  const auto active = requests.at(deadlines.begin()->second);
  const double waited = seconds(now - active->arrived), allowed = seconds_allowed(*active);
  for (const Sequence& sequence : active->sequences) open->push_back(places.erase(sequence.id) > 0);
  close(*active);
  why->finish = Finish::kExhausted;
  why->usage = active->usage;
  if (allowed > 0 && waited >= allowed) {
    why->refusal = Refusal::kTimeout;
    why->why = fmt::format(
        "the request was not done within its timeout of {} s; {} tokens were "
        "generated",
        allowed, active->usage.completion);
    return active;
  }
  why->refusal = Refusal::kWaitingTime;
  why->retry_seconds = admission.retry_seconds(now);
  why->why = fmt::format(
      "the request waited {} s, the most it may, without getting a place; {} "
      "others with {} prompt tokens wait",
      admission.limits().waiting_seconds, admission.waiting(), admission.waiting_tokens());
  return active;
}

// Text that waited for a stop string or the rest of a character, of all sequences before the first
// of them fails: a stream ends with the first failure.
void EngineService::Impl::tell_held_text(Active& active, const std::vector<bool>& open) {
  for (size_t i = 0; i < open.size(); ++i) {
    if (!open[i]) continue;
    Reply reply;
    reply.index = static_cast<int>(i);
    reply.text = active.sequences[i].text->flush();
    reply.usage = active.usage;
    if (!reply.text.empty()) active.sink(std::move(reply));
  }
}

// Ends what is late. On the output thread, so that no piece of a reply comes after its end.
void EngineService::Impl::expire() {
  for (;;) {
    std::vector<bool> open;
    Reply why;
    const auto active = take_expired(Clock::now(), &open, &why);
    if (!active) return;
    metrics.refused(why.refusal);
    tell_held_text(*active, open);
    for (size_t i = 0; i < open.size(); ++i) {
      if (!open[i]) continue;
      engine.cancel(active->sequences[i].id);
      metrics.sequence_ended({Finish::kCancelled, 0, 0, 0, 0});
      Reply reply = why;
      reply.index = static_cast<int>(i);
      reply.last = --active->open == 0;
      active->sink(std::move(reply));
    }
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

Result<std::vector<Prepared>> EngineService::prepare_all(Request common,
                                                         std::vector<PromptInput> prompts) const {
  const bool seed_given = common.seed_given;
  auto all = prepare_requests(std::move(common), std::move(prompts), impl_->context());
  if (!all || seed_given) return all;
  for (Prepared& prepared : *all) {
    uint64_t state = impl_->seed + impl_->next_seed.fetch_add(1);
    prepared.params.seed = splitmix64(state);
  }
  return all;
}

Result<std::vector<Token>> EngineService::tokenize(const Request& request) const {
  return prompt_tokens(request, impl_->context());
}

RequestId EngineService::start(Prepared request, Sink sink) {
  auto active = impl_->make_active(std::move(request), std::move(sink));
  const RequestId id = active->id;
  const int n = active->request.n;
  impl_->metrics.request_received(active->usage.prompt, active->request.stop.max_tokens, n);
  std::vector<NewSequence> sequences = sequences_of(*active);
  try {
    {
      std::unique_lock lock(impl_->mutex);
      if (impl_->stopped) {
        lock.unlock();
        impl_->refuse(active);
        return id;
      }
      impl_->open(active);
      for (int i = 0; i < n; ++i) impl_->places.emplace(sequences[i].id, Place{active, i});
    }
    for (NewSequence& sequence : sequences) impl_->engine.submit(std::move(sequence));
  } catch (...) {
    cancel(id);
    throw;
  }
  return id;
}

std::optional<Overload> EngineService::overloaded(std::span<const Prepared> requests) {
  int64_t tokens = 0;
  for (const Prepared& request : requests)
    tokens += int64_t{request.n} * static_cast<int64_t>(request.prompt.size());
  std::lock_guard lock(impl_->mutex);
  Admission& admission = impl_->admission;
  if (admission.has_room(std::max<int64_t>(tokens, 1))) return std::nullopt;
  impl_->metrics.refused(Refusal::kWaitingTokens);
  const auto waiting =
      fmt::format("Too many requests wait: they have {} prompt tokens", admission.waiting_tokens());
  const int64_t bound = admission.limits().waiting_tokens;
  return Overload{.why = requests.empty()
                             ? fmt::format("{}, not below the bound of {}", waiting, bound)
                             : fmt::format("{}; with the {} of this one that is more than the "
                                           "bound of {}",
                                           waiting, tokens, bound),
                  .retry_seconds = admission.retry_seconds(Clock::now())};
}

bool EngineService::queue_full() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->admission.is_full();
}

int EngineService::refused(Refusal reason) {
  impl_->metrics.refused(reason);
  std::lock_guard lock(impl_->mutex);
  return impl_->admission.retry_seconds(Clock::now());
}

void EngineService::cancel(RequestId id) { impl_->cancel(id); }

void EngineService::Impl::cancel(RequestId id) {
  std::shared_ptr<Active> active;
  std::vector<SeqId> running;
  {
    std::lock_guard lock(mutex);
    const auto found = requests.find(id);
    if (found == requests.end()) return;
    active = found->second;
    close(*active);
    for (const Sequence& sequence : active->sequences)
      if (places.erase(sequence.id) > 0) running.push_back(sequence.id);
  }
  for (SeqId sequence : running) {
    engine.cancel(sequence);
    metrics.sequence_ended({Finish::kCancelled, 0, 0, 0, 0});
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
  Metrics::Now now{.engine = impl_->engine.stats(), .max_sequences = impl_->config.max_num_seqs};
  now.queued_events = static_cast<int64_t>(impl_->events->size());
  {
    std::lock_guard lock(impl_->mutex);
    now.waiting_tokens = impl_->admission.waiting_tokens();
  }
  return impl_->metrics.text(now);
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
