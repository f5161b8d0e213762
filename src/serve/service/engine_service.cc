#include "serve/service/engine_service.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/random.h"
#include "base/seconds.h"
#include "serve/service/aborts.h"
#include "serve/service/constraint_compiler.h"
#include "serve/service/metrics.h"
#include "serve/service/open_request.h"
#include "serve/service/prepare.h"
#include "serve/service/reply_builder.h"
#include "serve/service/request_table.h"
#include "text/detokenizer.h"

namespace skiff::service {
namespace {

// The sequences for the engine. The last one takes the prompt, which is not needed here again.
std::vector<NewSequence> sequences_of(OpenRequest& request) {
  std::vector<NewSequence> sequences;
  Prepared& prepared = request.prepared;
  if (!prepared.reasoning_end.empty()) request.prompt = prepared.prompt;
  const size_t n = request.sequences.size();
  for (size_t i = 0; i < n; ++i) {
    NewSequence sequence{.id = request.sequences[i].id,
                         .prompt = i + 1 < n ? prepared.prompt : std::move(prepared.prompt),
                         .params = prepared.params,
                         .stop = prepared.stop,
                         .priority = prepared.priority,
                         .cache = prepared.cache,
                         .pooling = prepared.pooling};
    sequence.params.seed += i;
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

// What is left of a sequence whose reasoning was ended here: its prompt is all that it has so far.
NewSequence rest_of(const OpenRequest& request, size_t index, SeqId id) {
  const Prepared& prepared = request.prepared;
  const OpenSequence& sequence = request.sequences[index];
  NewSequence rest{.id = id,
                   .prompt = request.prompt,
                   .params = prepared.params,
                   .stop = prepared.stop,
                   .priority = prepared.priority,
                   .cache = prepared.cache};
  rest.prompt.insert(rest.prompt.end(), sequence.output.begin(), sequence.output.end());
  if (prepared.answer_constraint) rest.params.constraint = prepared.answer_constraint;
  rest.params.seed = mix64(prepared.params.seed + index);
  rest.params.min_tokens = std::max(0, prepared.params.min_tokens - sequence.generated);
  rest.params.prompt_logprobs = kNoLogprobs;
  rest.stop.max_tokens -= sequence.generated;
  return rest;
}

RequestSummary summary_of(const OpenRequest& request, std::optional<Refusal> refusal) {
  const Prepared& prepared = request.prepared;
  RequestSummary summary{.tag = prepared.tag, .arrived = request.arrived_at};
  for (const OpenSequence& sequence : request.sequences) {
    const auto least = [&](double& value, ServiceClock::time_point time) {
      if (time == ServiceClock::time_point{}) return;
      const double after = seconds(time - request.arrived);
      value = value < 0 ? after : std::min(value, after);
    };
    least(summary.queued, sequence.admitted);
    least(summary.first_token, sequence.first_token);
  }
  summary.total = seconds(ServiceClock::now() - request.arrived);
  summary.usage = request.usage;
  summary.n = prepared.n;
  summary.max_tokens = prepared.stop.max_tokens;
  summary.temperature = prepared.params.temperature;
  summary.top_p = prepared.params.top_p;
  summary.top_k = prepared.params.top_k;
  summary.finishes = request.finishes;
  summary.refusal = refusal;
  summary.constraint = prepared.constraint_kind;
  if (prepared.measured) {
    const MeasuredConstraint::Work work = prepared.measured->take_work();
    summary.mask_seconds = work.seconds;
    summary.masks = work.masks;
  }
  summary.calls = request.calls;
  summary.broken_calls = request.broken_calls;
  return summary;
}

std::unique_ptr<ConstraintCompiler> compiler_of(const ServiceConfig& config,
                                                const text::Tokenizer& tokenizer) {
  if (!config.constraints || config.pooled) return nullptr;
  const int width = config.vocab_size > 0 ? config.vocab_size : tokenizer.vocab_size();
  return std::make_unique<ConstraintCompiler>(
      grammar::Vocabulary::of(tokenizer, width, config.eos),
      ConstraintCompiler::Options{.space = config.constraint_space});
}

}  // namespace

struct EngineService::Impl {
  using SequenceRef = RequestTable::SequenceRef;

  Impl(ServiceConfig config, EnginePort& engine, std::shared_ptr<EventQueue> events,
       std::shared_ptr<const text::Tokenizer> tokenizer,
       std::shared_ptr<const text::ChatTemplate> chat_template,
       std::shared_ptr<RequestObserver> observer)
      : config(std::move(config)),
        engine(engine),
        observer(std::move(observer)),
        events(std::move(events)),
        tokenizer(std::move(tokenizer)),
        chat_template(std::move(chat_template)),
        longest(longest_piece(*this->tokenizer)),
        special(*this->tokenizer),
        split(this->config.answer, *this->tokenizer, this->chat_template.get()),
        constraints(compiler_of(this->config, *this->tokenizer)),
        metrics(this->config.model_name, this->config.cache_info),
        replies(engine, metrics),
        seed(this->config.seed ? this->config.seed : random_seed()),
        table(this->config.admission) {}

  void run();
  void handle(Event& event);
  void send_reply(const SequenceRef& sequence, Event& event);
  void resume(const SequenceRef& sequence);
  void fail(const SequenceRef& sequence);
  void cancel(RequestId id);
  void refuse(OpenRequest& request, Refusal refusal);
  void flush_text(OpenRequest& request, const std::vector<size_t>& running);
  void end_expired();
  void end_aborted();
  void end_early(const RequestTable::Removed& removed, const Reply& end);
  void report_left();
  void report(const OpenRequest& request, std::optional<Refusal> refusal);
  std::shared_ptr<OpenRequest> make_request(Prepared prepared, Sink sink);
  std::unique_ptr<answer::AnswerParser> parser_of(const Prepared& prepared, SeqId sequence) const;
  PrepareContext context() const {
    return {.config = config,
            .tokenizer = *tokenizer,
            .chat_template = chat_template.get(),
            .longest_piece = longest,
            .special = &special,
            .split = &split,
            .constraints = constraints.get()};
  }

  const ServiceConfig config;
  EnginePort& engine;
  const std::shared_ptr<RequestObserver> observer;  // may be null
  const std::shared_ptr<EventQueue> events;
  const std::shared_ptr<const text::Tokenizer> tokenizer;
  const std::shared_ptr<const text::ChatTemplate> chat_template;
  const size_t longest;
  const SpecialText special;
  const AnswerSplit split;
  const std::unique_ptr<ConstraintCompiler> constraints;  // null: they are refused
  Metrics metrics;
  ReplyBuilder replies;
  const uint64_t seed, call_seed = random_seed();
  std::atomic<uint64_t> next_id{1}, next_seed{0};
  RequestTable table;
  AbortQueue aborts;
  std::atomic<uint64_t> forgotten{0};  // calls of forget_prefixes()
  std::mutex left_mutex;
  std::vector<std::shared_ptr<OpenRequest>> left;  // cancelled ones; guarded by left_mutex
  std::thread output;
};

void EngineService::Impl::run() {
  pthread_setname_np(pthread_self(), "output");
  for (;;) {
    auto batch = events->wait_until(table.next_deadline());
    if (batch.empty() && events->closed()) return;
    for (Event& event : batch) handle(event);
    try {
      end_expired();
      end_aborted();
      report_left();
    } catch (const std::exception& e) {
      spdlog::error("the end of a request could not be reported: {}", escaped(e.what()));
    }
  }
}

void EngineService::Impl::handle(Event& event) {
  const auto sequence = table.find(event);
  if (!sequence) return;
  try {
    send_reply(*sequence, event);
  } catch (const std::exception& e) {
    spdlog::error("a reply could not be made: {}", escaped(e.what()));
    fail(*sequence);
  }
}

// A reply could not be made, for want of memory for instance: that request alone ends.
void EngineService::Impl::fail(const SequenceRef& sequence) {
  const OpenRequest& request = *sequence.request;
  cancel(request.id);
  Reply reply;
  reply.index = static_cast<int>(sequence.index);
  reply.finish = Finish::kCancelled;
  reply.usage = request.usage;
  try {
    request.sink(std::move(reply));
  } catch (const std::exception&) {
    // The destruction of the sink still ends the client's reply.
  }
}

void EngineService::Impl::send_reply(const SequenceRef& sequence, Event& event) {
  OpenRequest& request = *sequence.request;
  Reply reply = replies.build(request, request.sequences[sequence.index], event);
  reply.index = static_cast<int>(sequence.index);
  if (reply.text.empty() && reply.tokens.empty() && reply.finish == Finish::kNone) return;
  if (!table.remove_ended(sequence)) return;  // cancelled meanwhile
  const bool last = reply.last;
  std::optional<Refusal> refusal;
  if (reply.finish == Finish::kExhausted) refusal = reply.refusal;
  if (last) report(request, refusal);
  request.sink(std::move(reply));
  if (std::exchange(request.sequences[sequence.index].resumes, false)) resume(sequence);
}

void EngineService::Impl::resume(const SequenceRef& sequence) {
  const SeqId id = next_id.fetch_add(1);
  if (!table.rename(sequence, id)) return;  // cancelled meanwhile
  engine.submit(rest_of(*sequence.request, sequence.index, id));
  // Whoever has cancelled the request since may have been ahead of the engine.
  if (!table.contains(sequence.request->id)) engine.cancel(id);
}

// The ids of calls can neither be foreseen nor repeat.
std::unique_ptr<answer::AnswerParser> EngineService::Impl::parser_of(const Prepared& prepared,
                                                                     SeqId sequence) const {
  if (!prepared.answer) return nullptr;
  return std::make_unique<answer::AnswerParser>(prepared.answer, call_seed + mix64(sequence));
}

std::shared_ptr<OpenRequest> EngineService::Impl::make_request(Prepared prepared, Sink sink) {
  auto request = std::make_shared<OpenRequest>();
  request->id = next_id.fetch_add(1);
  request->sink = std::move(sink);
  request->open = prepared.n;
  request->usage.prompt = static_cast<int>(prepared.prompt.size());
  request->arrived = ServiceClock::now();
  request->arrived_at = std::chrono::system_clock::now();
  if (const uint64_t times = forgotten; times > 0)
    prepared.cache.salt.insert(0, fmt::format("forgotten {} times\n", times));
  const SeqId first = next_id.fetch_add(prepared.n);
  request->sequences.reserve(prepared.n);
  for (int i = 0; i < prepared.n; ++i)
    request->sequences.push_back(
        {.id = first + i,
         .text = std::make_unique<text::Detokenizer>(
             *tokenizer, text::DetokenizerOptions{.stops = prepared.stop_strings,
                                                  .include_stop = prepared.include_stop,
                                                  .skip_special = prepared.skip_special,
                                                  .shown = prepared.shown,
                                                  .min_tokens = prepared.params.min_tokens}),
         .answer = parser_of(prepared, first + i),
         .prompt_logprobs = {},
         .output = {},
         .bounded = !prepared.reasoning_end.empty()});
  request->prepared = std::move(prepared);
  return request;
}

// Runs on the caller's thread: nobody else knows the request.
void EngineService::Impl::refuse(OpenRequest& request, Refusal refusal) {
  metrics.refused(refusal);
  request.finishes.assign(request.sequences.size(), Finish::kExhausted);
  report(request, refusal);
  for (int i = 0; i < request.prepared.n; ++i) {
    Reply reply;
    reply.index = i;
    reply.finish = Finish::kExhausted;
    const bool paused = refusal == Refusal::kPaused;
    reply.why = paused ? "the server is paused" : "the server is shutting down";
    reply.refusal = refusal;
    reply.usage = request.usage;
    reply.last = i + 1 == request.prepared.n;
    request.sink(std::move(reply));
  }
}

// Text that was withheld for a possible stop string or the rest of a character. It is sent for all
// sequences before the first of them fails, because a stream ends with the first failure.
void EngineService::Impl::flush_text(OpenRequest& request, const std::vector<size_t>& running) {
  for (const size_t i : running) {
    Reply reply;
    reply.index = static_cast<int>(i);
    ReplyBuilder::flush(request.sequences[i], reply);
    reply.usage = request.usage;
    if (!reply.text.empty() || !reply.parts.empty()) request.sink(std::move(reply));
  }
}

// Runs on the output thread, so that no piece of a reply comes after its end.
void EngineService::Impl::end_expired() {
  while (const auto expired = table.remove_expired(ServiceClock::now()))
    end_early(expired->removed, expired->end);
}

void EngineService::Impl::end_early(const RequestTable::Removed& removed, const Reply& end) {
  const auto& [request, running] = removed;
  metrics.refused(end.refusal);
  flush_text(*request, running);
  for (const size_t i : running) engine.cancel(request->sequences[i].id);
  request->finishes.insert(request->finishes.end(), running.size(), Finish::kExhausted);
  report(*request, end.refusal);
  for (const size_t i : running) {
    metrics.sequence_ended({Finish::kCancelled, 0, 0, 0, 0});
    Reply reply = end;
    reply.index = static_cast<int>(i);
    reply.last = --request->open == 0;
    request->sink(std::move(reply));
  }
}

// Runs on the output thread, for the same reason.
void EngineService::Impl::end_aborted() {
  for (AbortQueue::Job& job : aborts.take()) {
    const bool paused = job.wish.why == Refusal::kPaused;
    Reply end;
    end.finish = Finish::kExhausted;
    end.refusal = job.wish.why;
    end.why = paused ? "the server was paused" : "the request was aborted by the operator";
    std::vector<Aborted> aborted;
    for (const auto& removed : table.remove_named(job.wish.all, AbortNames(job.wish.ids))) {
      const OpenRequest& request = *removed.request;
      const SharedTag& tag = request.prepared.tag;
      end.usage = request.usage;
      aborted.push_back({.id = tag ? tag->id : "", .generated = request.usage.completion});
      end_early(removed, end);
    }
    job.done.set_value(std::move(aborted));
  }
}

// Only here does nobody else touch the counts of a request that was cancelled.
void EngineService::Impl::report_left() {
  std::vector<std::shared_ptr<OpenRequest>> gone;
  {
    const std::lock_guard lock(left_mutex);
    gone.swap(left);
  }
  for (const auto& request : gone) {
    request->finishes.resize(request->sequences.size(), Finish::kCancelled);
    report(*request, std::nullopt);
  }
}

// Called once for each request, when it has ended.
void EngineService::Impl::report(const OpenRequest& request, std::optional<Refusal> refusal) {
  const RequestSummary summary = summary_of(request, refusal);
  metrics.reasoned(summary.usage.reasoning);
  if (!summary.constraint.empty())
    metrics.constrained(summary.constraint, summary.mask_seconds, summary.masks,
                        request.prepared.measured->failed());
  if (observer && summary.tag) observer->ended(summary);
}

EngineService::EngineService(ServiceConfig config, EnginePort& engine,
                             std::shared_ptr<EventQueue> events,
                             std::shared_ptr<const text::Tokenizer> tokenizer,
                             std::shared_ptr<const text::ChatTemplate> chat_template,
                             std::shared_ptr<RequestObserver> observer)
    : impl_(std::make_unique<Impl>(std::move(config), engine, std::move(events),
                                   std::move(tokenizer), std::move(chat_template),
                                   std::move(observer))) {
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

RequestId EngineService::start(Prepared prepared, Sink sink) {
  const auto request = impl_->make_request(std::move(prepared), std::move(sink));
  const RequestId id = request->id;
  impl_->metrics.request_received(request->usage.prompt, request->prepared.stop.max_tokens,
                                  request->prepared.n);
  if (const SharedTag& tag = request->prepared.tag) {
    impl_->metrics.asked(tag->route);
    if (impl_->observer) impl_->observer->started(*tag);
  }
  std::vector<NewSequence> sequences = sequences_of(*request);
  try {
    switch (impl_->table.add(request)) {
      case RequestTable::Added::kNo:
        impl_->refuse(*request, Refusal::kStopping);
        return id;
      case RequestTable::Added::kPaused:
        impl_->refuse(*request, Refusal::kPaused);
        return id;
      case RequestTable::Added::kNextDeadline:
        impl_->events->wake();
        break;
      case RequestTable::Added::kYes:
        break;
    }
    for (NewSequence& sequence : sequences) impl_->engine.submit(std::move(sequence));
  } catch (...) {
    cancel(id);
    throw;
  }
  return id;
}

std::optional<Overload> EngineService::overloaded(std::span<const Prepared> requests) {
  auto overload = impl_->table.overload(requests);
  if (overload) impl_->metrics.refused(Refusal::kWaitingTokens);
  return overload;
}

bool EngineService::queue_full() const { return impl_->table.queue_full(); }

int EngineService::refused(Refusal reason) {
  impl_->metrics.refused(reason);
  return impl_->table.retry_seconds();
}

void EngineService::cancel(RequestId id) { impl_->cancel(id); }

void EngineService::Impl::cancel(RequestId id) {
  const auto [request, running] = table.remove(id);
  for (const size_t i : running) {
    engine.cancel(request->sequences[i].id);
    metrics.sequence_ended({Finish::kCancelled, 0, 0, 0, 0});
  }
  if (!request) return;
  {
    const std::lock_guard lock(left_mutex);
    left.push_back(request);
  }
  events->wake();
}

std::vector<Aborted> EngineService::abort(AbortWish wish) {
  auto done = impl_->aborts.add(std::move(wish));
  impl_->events->wake();
  return done.get();
}

std::vector<Aborted> EngineService::pause() {
  impl_->table.set_paused(true);
  return abort({.all = true, .ids = {}, .why = Refusal::kPaused});
}

void EngineService::resume() { impl_->table.set_paused(false); }
bool EngineService::paused() const { return impl_->table.paused(); }
void EngineService::forget_prefixes() { ++impl_->forgotten; }

const text::Tokenizer& EngineService::tokenizer() const { return *impl_->tokenizer; }
int EngineService::max_model_len() const { return impl_->config.max_model_len; }
const PooledModel* EngineService::pooled_model() const {
  return impl_->config.pooled ? &*impl_->config.pooled : nullptr;
}

Status EngineService::health() const {
  if (impl_->table.stopped()) return Error{Code::kExhausted, "the server is shutting down"};
  if (impl_->table.paused()) return Error{Code::kExhausted, "the server is paused"};
  const double stuck = impl_->engine.stats().seconds_since_progress;
  if (stuck > impl_->config.stuck_seconds)
    return Error{Code::kInternal, fmt::format("the engine has made no step for {:.0f} s", stuck)};
  return ok();
}

ServiceLoad EngineService::load() const {
  const engine::EngineStats stats = impl_->engine.stats();
  const double used = stats.blocks_total - stats.blocks_free;
  return {.running = stats.running,
          .waiting = stats.waiting,
          .kv_used = stats.blocks_total > 0 ? used / stats.blocks_total : 0};
}

std::string EngineService::metrics() const {
  Metrics::Now now{.engine = impl_->engine.stats(), .max_sequences = impl_->config.max_num_seqs};
  now.queued_events = static_cast<int64_t>(impl_->events->size());
  now.waiting_tokens = impl_->table.waiting_tokens();
  if (impl_->observer) now.observer = impl_->observer->counts();
  return impl_->metrics.text(now);
}

void EngineService::stop() {
  const auto open = impl_->table.stop();
  if (!open) return;
  for (const RequestId id : *open) cancel(id);
  impl_->events->close();
  if (impl_->output.joinable()) impl_->output.join();
  impl_->aborts.close();
  impl_->report_left();
}

}  // namespace skiff::service
