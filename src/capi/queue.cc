#include "capi/queue.h"

#include <algorithm>
#include <chrono>

#include "capi/event_json.h"
#include "capi/submit.h"

namespace skiff::capi {
namespace {

using Clock = std::chrono::steady_clock;

// The milliseconds of `timeout_ms` that are left, rounded up; -1 for no end.
int left_of(int timeout_ms, Clock::time_point start) {
  if (timeout_ms < 0) return -1;
  const auto gone = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - start).count();
  return static_cast<int>(std::max<int64_t>(0, timeout_ms - gone));
}

}  // namespace

Outcome Queue::open(const std::shared_ptr<Engine>& engine, std::shared_ptr<Queue>* queue) {
  std::shared_ptr<Loaded> loaded;
  if (Outcome state = engine->loaded(&loaded); !state.ok()) return state;
  auto made = std::make_shared<Queue>(engine, loaded->tokenizer());
  if (Outcome state = engine->attach(made->outbox_); !state.ok()) return state;
  *queue = std::move(made);
  return {};
}

Queue::Queue(std::shared_ptr<Engine> engine, std::shared_ptr<const text::Tokenizer> tokenizer)
    : engine_(std::move(engine)), tokenizer_(std::move(tokenizer)) {}

Queue::~Queue() {
  const auto requests = outbox_->drop_all();
  std::shared_ptr<Loaded> loaded;
  if (!engine_->loaded(&loaded).ok()) return;
  for (const service::RequestId request : requests) loaded->service().cancel(request);
}

Outcome Queue::submit(std::string_view kind, std::string_view body, uint64_t* id) {
  std::shared_ptr<Loaded> loaded;
  if (Outcome state = engine_->loaded(&loaded); !state.ok()) return state;
  const uint64_t next = next_id_.fetch_add(1);
  Outcome outcome = capi::submit({*loaded, outbox_, next}, kind, body);
  if (outcome.ok()) *id = next;
  return outcome;
}

Outcome Queue::wait(int timeout_ms, std::string* events) {
  const auto start = Clock::now();
  for (;;) {
    const Notice::Woken woken = outbox_->notice().wait(left_of(timeout_ms, start));
    if (woken == Notice::Woken::kInterrupted)
      return {.status = SKIFF_INTERRUPTED, .what = "a signal was handled"};
    std::lock_guard lock(writing_);
    std::vector<Piece> pieces;
    if (Outcome closed = outbox_->take(&pieces); !closed.ok()) return closed;
    // Another thread may have taken what there was.
    if (pieces.empty() && woken == Notice::Woken::kSet && left_of(timeout_ms, start) != 0) continue;
    *events = events_json(std::move(pieces), *tokenizer_);
    return {};
  }
}

void Queue::cancel(uint64_t id) {
  const auto request = outbox_->drop(id);
  std::shared_ptr<Loaded> loaded;
  if (request && engine_->loaded(&loaded).ok()) loaded->service().cancel(*request);
}

}  // namespace skiff::capi
