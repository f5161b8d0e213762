#include "serve/service/event_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace skiff::service {
namespace {

template <class T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

void merge(Event& to, Event& from) {
  for (DraftLogprobs& one : from.draft_logprobs) one.at += static_cast<int>(to.tokens.size());
  append(to.draft_logprobs, from.draft_logprobs);
  append(to.tokens, from.tokens);
  append(to.logprobs, from.logprobs);
  append(to.prompt_logprobs, from.prompt_logprobs);
  to.drafted += from.drafted;
  to.kept += from.kept;
  if (from.finish != Finish::kNone) {
    to.finish = from.finish;
    to.why = std::move(from.why);
    to.pooled = std::move(from.pooled);
  }
  if (!from.admitted) return;
  to.admitted = true;
  to.cached = from.cached;
}

}  // namespace

void EventQueue::put(Event event) {
  if (merging_) {
    const auto [found, is_new] = index_.try_emplace(event.seq, pending_.size());
    if (!is_new) return merge(pending_[found->second], event);
  }
  pending_.push_back(std::move(event));
}

void EventQueue::push(std::vector<Event> events) {
  {
    std::lock_guard lock(mutex_);
    for (Event& event : events) put(std::move(event));
    if (!merging_ && pending_.size() > merge_above_) {
      merging_ = true;
      for (Event& event : std::exchange(pending_, {})) put(std::move(event));
    }
  }
  changed_.notify_one();
}

void EventQueue::wake() {
  {
    std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_one();
}

void EventQueue::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_one();
}

bool EventQueue::closed() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

size_t EventQueue::size() const {
  std::lock_guard lock(mutex_);
  return pending_.size();
}

std::vector<Event> EventQueue::wait_until(Time end) {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return closed_ || woken_ || !pending_.empty(); };
  // wait_until(Time::max()) overflows in some standard libraries.
  if (end == Time::max())
    changed_.wait(lock, ready);
  else
    changed_.wait_until(lock, end, ready);
  woken_ = merging_ = false;
  index_.clear();
  return std::exchange(pending_, {});
}

}  // namespace skiff::service
