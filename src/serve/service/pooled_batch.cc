#include "serve/service/pooled_batch.h"

#include <future>
#include <utility>

#include "serve/service/pooled_model.h"

namespace skiff::service {

void PooledBatch::start(std::vector<Prepared> prompts) {
  SKIFF_CHECK(!prompts.empty(), "a batch without prompts");
  {
    std::lock_guard lock(mutex_);
    open_ = prompts.size();
    answer_.vectors.resize(prompts.size());
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    const RequestId id = service_.start(
        std::move(prompts[i]),
        [self = shared_from_this(), i](Reply reply) { self->take(i, std::move(reply)); });
    std::lock_guard lock(mutex_);
    requests_.push_back(id);
  }
  bool ended;
  {
    std::lock_guard lock(mutex_);
    ended = !done_;
  }
  if (ended) stop_all();  // a failure may have come before the last of them was started
}

void PooledBatch::take(size_t prompt, Reply reply) {
  Done done;
  PooledAnswer answer;
  {
    std::lock_guard lock(mutex_);
    if (!done_ || reply.finish == Finish::kNone) return;
    const bool failed = reply.finish != Finish::kStop;
    answer_.usage.prompt += reply.usage.prompt;
    answer_.usage.cached += reply.usage.cached;
    answer_.vectors[prompt] = std::move(reply.pooled);
    if (!failed && --open_ > 0) return;
    if (failed) answer_.failure = std::move(reply);
    done = std::exchange(done_, nullptr);
    answer = std::exchange(answer_, {});
  }
  if (answer.failure) stop_all();
  done(std::move(answer));
}

void PooledBatch::stop_all() {
  std::vector<RequestId> requests;
  {
    std::lock_guard lock(mutex_);
    requests = requests_;
  }
  for (const RequestId id : requests) service_.cancel(id);
}

void PooledBatch::cancel() {
  Done done;  // destroyed once the mutex is free: it may own who holds this batch
  {
    std::lock_guard lock(mutex_);
    done = std::exchange(done_, nullptr);
  }
  stop_all();
}

Result<std::vector<std::vector<float>>> embed(Service& service, Request common,
                                              std::vector<PromptInput> prompts, int dimensions,
                                              std::optional<bool> normalize) {
  const PooledModel* model = service.pooled_model();
  if (model == nullptr || model->task != PooledModel::kEmbed)
    return Error{Code::kUnsupported,
                 "this model gives no embeddings: load it with --convert embed"};
  if (const Status fits = check_dimensions(*model, dimensions); !fits) return fits.error();
  if (prompts.empty()) return std::vector<std::vector<float>>{};
  common.pool = true;
  auto prepared = service.prepare_all(std::move(common), std::move(prompts));
  if (!prepared) return prepared.error();
  const auto promise = std::make_shared<std::promise<PooledAnswer>>();
  const auto batch = std::make_shared<PooledBatch>(
      service, [promise](PooledAnswer answer) { promise->set_value(std::move(answer)); });
  batch->start(std::move(*prepared));
  PooledAnswer answer = promise->get_future().get();
  if (answer.failure) return Error{Code::kExhausted, answer.failure->why};
  for (std::vector<float>& vector : answer.vectors)
    vector = embedding_of(std::move(vector), dimensions, normalize.value_or(model->normalize));
  return std::move(answer.vectors);
}

}  // namespace skiff::service
