// serve/service/pooled_batch.h -- several prompts pooled together: started at once, answered in one
// piece, or ended by the first failure.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "serve/service/service.h"

namespace skiff::service {

struct PooledAnswer {
  std::vector<std::vector<float>> vectors;  // one for each prompt, as the engine gives them
  Usage usage;
  std::optional<Reply> failure;  // the piece that ended it; `vectors` are then incomplete
};

// The service's sinks keep it alive. Thread-safe.
class PooledBatch : public std::enable_shared_from_this<PooledBatch> {
 public:
  // Called once, on the output thread or inside start(), unless the batch is cancelled before; must
  // be quick and must not throw.
  using Done = std::function<void(PooledAnswer)>;
  // The service must outlive the batch.
  PooledBatch(Service& service, Done done) : service_(service), done_(std::move(done)) {}

  // Called once; the prompts were prepared with Request::pool, and there is at least one.
  void start(std::vector<Prepared> prompts);
  // Stops what still runs; `done` is not called any more, unless it is being called.
  void cancel();

 private:
  void take(size_t prompt, Reply reply);
  void stop_all();

  Service& service_;
  std::mutex mutex_;  // guards the rest
  Done done_;         // empty once it was called
  PooledAnswer answer_;
  std::vector<RequestId> requests_;
  size_t open_ = 0;
};

// What libraries call: pools the prompts and waits. The vectors are embeddings of `dimensions`
// numbers (0: all). An Error where the service has no such model, a prompt cannot be used, or the
// engine ends it.
Result<std::vector<std::vector<float>>> embed(Service& service, Request common,
                                              std::vector<PromptInput> prompts, int dimensions = 0,
                                              std::optional<bool> normalize = std::nullopt);

}  // namespace skiff::service
