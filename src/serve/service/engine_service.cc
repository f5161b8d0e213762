#include "serve/service/engine_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/random.h"
#include "base/seconds.h"
#include "serve/service/constraint_compiler.h"
#include "serve/service/new_sequences.h"
#include "serve/service/open_request.h"
#include "serve/service/output.h"
#include "serve/service/prepare.h"
#include "serve/service/request_report.h"
#include "serve/service/service_core.h"
#include "text/detokenizer.h"

namespace skiff::service {
namespace {

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
  Impl(ServiceConfig config, EnginePort& engine, std::shared_ptr<EventQueue> events,
       std::shared_ptr<const text::Tokenizer> tokenizer,
       std::shared_ptr<const text::ChatTemplate> chat_template,
       std::shared_ptr<RequestObserver> observer)
      : core(std::move(config), engine, std::move(events), std::move(observer)),
        tokenizer(std::move(tokenizer)),
        chat_template(std::move(chat_template)),
        longest(longest_piece(*this->tokenizer)),
        special(*this->tokenizer),
        split(core.config.answer, *this->tokenizer, this->chat_template.get()),
        constraints(compiler_of(core.config, *this->tokenizer)),
        seed(core.config.seed ? core.config.seed : random_seed()),
        output(core) {}

  void refuse(OpenRequest& request, Refusal refusal);
  std::shared_ptr<OpenRequest> make_request(Prepared prepared, Sink sink);
  std::unique_ptr<answer::AnswerParser> parser_of(const Prepared& prepared, SeqId sequence) const;
  std::unique_ptr<ReasoningMeter> meter_of(const Prepared& prepared) const;
  PrepareContext context() const {
    return {.config = core.config,
            .tokenizer = *tokenizer,
            .chat_template = chat_template.get(),
            .longest_piece = longest,
            .special = &special,
            .split = &split,
            .constraints = constraints.get()};
  }

  ServiceCore core;
  const std::shared_ptr<const text::Tokenizer> tokenizer;
  const std::shared_ptr<const text::ChatTemplate> chat_template;
  const size_t longest;
  const SpecialText special;
  const AnswerSplit split;
  const std::unique_ptr<ConstraintCompiler> constraints;  // null: they are refused
  const uint64_t seed, call_seed = random_seed();
  std::atomic<uint64_t> next_seed{0};
  std::atomic<uint64_t> forgotten{0};  // calls of forget_prefixes()
  Output output;
};

// The ids of calls can neither be foreseen nor repeat.
std::unique_ptr<answer::AnswerParser> EngineService::Impl::parser_of(const Prepared& prepared,
                                                                     SeqId sequence) const {
  if (!prepared.answer) return nullptr;
  return std::make_unique<answer::AnswerParser>(prepared.answer, call_seed + mix64(sequence));
}

std::unique_ptr<ReasoningMeter> EngineService::Impl::meter_of(const Prepared& prepared) const {
  if (!prepared.metered) return nullptr;
  return std::make_unique<ReasoningMeter>(*tokenizer, prepared.metered, prepared.metered_marks);
}

std::shared_ptr<OpenRequest> EngineService::Impl::make_request(Prepared prepared, Sink sink) {
  auto request = std::make_shared<OpenRequest>();
  request->id = core.next_id.fetch_add(1);
  request->sink = std::move(sink);
  request->metrics = &core.metrics_of(prepared.replica);
  request->open = prepared.n;
  request->usage.prompt = static_cast<int>(prepared.prompt.size());
  request->arrived = ServiceClock::now();
  request->arrived_at = std::chrono::system_clock::now();
  if (const uint64_t times = forgotten; times > 0)
    prepared.cache.salt.insert(0, fmt::format("forgotten {} times\n", times));
  const SeqId first = core.next_id.fetch_add(prepared.n);
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
         .bounded = !prepared.reasoning_end.empty(),
         .meter = meter_of(prepared),
         .usage = {.prompt = request->usage.prompt},
         .constraint = for_choice(prepared.params.constraint, prepared.n)});
  request->prepared = std::move(prepared);
  return request;
}

// Runs on the caller's thread: nobody else knows the request.
void EngineService::Impl::refuse(OpenRequest& request, Refusal refusal) {
  request.metrics->refused(refusal);
  request.finishes.assign(request.sequences.size(), Finish::kExhausted);
  report_end(request, refusal, core.observer.get());
  for (int i = 0; i < request.prepared.n; ++i) {
    Reply reply;
    reply.index = i;
    reply.finish = Finish::kExhausted;
    reply.why = refusal == Refusal::kPaused ? core.table.pause_reason() : "";
    if (reply.why.empty()) reply.why = "the server is shutting down";
    reply.refusal = refusal;
    reply.usage = request.usage;
    reply.last = i + 1 == request.prepared.n;
    request.sink(std::move(reply));
  }
}

EngineService::EngineService(ServiceConfig config, EnginePort& engine,
                             std::shared_ptr<EventQueue> events,
                             std::shared_ptr<const text::Tokenizer> tokenizer,
                             std::shared_ptr<const text::ChatTemplate> chat_template,
                             std::shared_ptr<RequestObserver> observer)
    : impl_(std::make_unique<Impl>(std::move(config), engine, std::move(events),
                                   std::move(tokenizer), std::move(chat_template),
                                   std::move(observer))) {
  impl_->output.start();
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
  // The copies of the prompt may not fit into memory, so nobody is told of the request before.
  std::vector<NewSequence> sequences = sequences_of(*request);
  request->metrics->request_received(request->usage.prompt, request->prepared.stop.max_tokens,
                                     request->prepared.n);
  if (const SharedTag& tag = request->prepared.tag) {
    request->metrics->asked(tag->route);
    if (impl_->core.observer) impl_->core.observer->started(*tag);
  }
  try {
    switch (impl_->core.table.add(request)) {
      case RequestTable::Added::kNo:
        impl_->refuse(*request, Refusal::kStopping);
        return id;
      case RequestTable::Added::kPaused:
        impl_->refuse(*request, Refusal::kPaused);
        return id;
      case RequestTable::Added::kNextDeadline:
        impl_->core.events->wake();
        break;
      case RequestTable::Added::kYes:
        break;
    }
    std::vector<SeqId> ids;
    ids.reserve(sequences.size());
    for (const NewSequence& sequence : sequences) ids.push_back(sequence.id);
    impl_->core.engine.submit_together(std::move(sequences));
    // If the request was ended since it was added, its sequences may have been cancelled before the
    // engine knew them, so they are cancelled again.
    if (!impl_->core.table.contains(id))
      for (const SeqId sequence : ids) impl_->core.engine.cancel(sequence);
  } catch (...) {
    cancel(id);
    throw;
  }
  return id;
}

std::optional<Overload> EngineService::overloaded(std::span<const Prepared> requests) {
  auto overload = impl_->core.table.overload(requests);
  if (overload)
    impl_->core.metrics_of(requests.empty() ? std::nullopt : requests.front().replica)
        .refused(Refusal::kWaitingTokens);
  return overload;
}

bool EngineService::queue_full() const { return impl_->core.table.queue_full(); }

int EngineService::refused(Refusal reason) {
  impl_->core.metrics_of(std::nullopt).refused(reason);
  return impl_->core.table.retry_seconds();
}

void EngineService::cancel(RequestId id) { impl_->output.cancel(id); }

std::vector<Aborted> EngineService::abort(AbortWish wish) {
  return impl_->output.abort(std::move(wish));
}

std::vector<Aborted> EngineService::pause(Ending ending) {
  RequestTable& table = impl_->core.table;
  table.set_paused("the server is paused");
  const auto begin = ServiceClock::now();
  while (ending.waits && !table.empty() && seconds_since(begin) < ending.seconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (!table.paused()) return {};
  }
  return abort({.all = true, .ids = {}, .why = Refusal::kPaused});
}

void EngineService::resume() { impl_->core.table.set_paused(""); }

Upkeep::Door EngineService::door() {
  Impl* const impl = impl_.get();
  return {
      .pause_reason = [impl] { return impl->core.table.pause_reason(); },
      .set_paused = [impl](std::string why) { impl->core.table.set_paused(std::move(why)); },
      .is_empty = [impl] { return impl->core.table.empty(); },
      .end_all =
          [impl] { return impl->output.abort({.all = true, .ids = {}, .why = Refusal::kPaused}); }};
}

bool EngineService::paused() const { return impl_->core.table.paused(); }
void EngineService::forget_prefixes() { ++impl_->forgotten; }

const text::Tokenizer& EngineService::tokenizer() const { return *impl_->tokenizer; }
int EngineService::max_model_len() const { return impl_->core.config.max_model_len; }
const PooledModel* EngineService::pooled_model() const {
  return impl_->core.config.pooled ? &*impl_->core.config.pooled : nullptr;
}

Status EngineService::health() const {
  if (impl_->core.table.stopped()) return Error{Code::kExhausted, "the server is shutting down"};
  if (const std::string why = impl_->core.table.pause_reason(); !why.empty())
    return Error{Code::kExhausted, why};
  const double stuck = impl_->core.engine.stats().seconds_since_progress;
  if (stuck > impl_->core.config.stuck_seconds)
    return Error{Code::kInternal, fmt::format("the engine has made no step for {:.0f} s", stuck)};
  return ok();
}

ServiceLoad EngineService::load() const {
  const engine::EngineStats stats = impl_->core.engine.stats();
  const double used = stats.blocks_total - stats.blocks_free;
  return {.running = stats.running,
          .waiting = stats.waiting,
          .kv_used = stats.blocks_total > 0 ? used / stats.blocks_total : 0};
}

std::string EngineService::metrics_of(std::optional<int> replica) const {
  const ServiceCore& core = impl_->core;
  Metrics::Now now{.max_sequences = core.config.max_num_seqs};
  now.replicas = core.engine.stats_of_each();
  const int apart = core.config.replicas_apart;
  if (apart > 1 && apart == std::ssize(now.replicas)) {
    now.number = std::clamp(replica.value_or(0), 0, apart - 1);
    now.replicas = {now.replicas[static_cast<size_t>(now.number)]};
    now.engine = now.replicas.front();
    now.max_sequences /= apart;
  } else {
    now.engine = core.engine.stats();
  }
  now.queued_events = static_cast<int64_t>(core.events->size());
  now.waiting_tokens = core.table.waiting_tokens();
  if (core.observer) now.observer = core.observer->counts();
  return core.metrics_of(replica).text(now);
}

void EngineService::stop() {
  const auto open = impl_->core.table.stop();
  if (!open) return;
  for (const RequestId id : *open) cancel(id);
  impl_->output.stop();
}

}  // namespace skiff::service
