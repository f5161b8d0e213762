// capi/queue.h -- the requests of one part of a program, and their events.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "capi/engine.h"
#include "capi/outbox.h"

namespace skiff::capi {

// Thread-safe.
class Queue {
 public:
  static Outcome open(const std::shared_ptr<Engine>& engine, std::shared_ptr<Queue>* queue);
  Queue(std::shared_ptr<Engine> engine, std::shared_ptr<const text::Tokenizer> tokenizer);
  ~Queue();

  int fd() const { return outbox_->notice().fd(); }
  Outcome submit(std::string_view kind, std::string_view body, uint64_t* id);
  Outcome wait(int timeout_ms, std::string* events);
  void cancel(uint64_t id);

 private:
  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Outbox> outbox_ = std::make_shared<Outbox>();
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::atomic<uint64_t> next_id_{1};
  std::mutex writing_;  // events are written in the order in which they were taken
};

}  // namespace skiff::capi
