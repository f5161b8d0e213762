// serve/service/engine_service.h -- the Service over an engine. Requests become sequences; one
// output thread turns the engine's events into text.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "serve/service/engine_port.h"
#include "serve/service/event_queue.h"
#include "serve/service/request_observer.h"
#include "serve/service/service.h"
#include "serve/service/service_config.h"
#include "serve/service/upkeep.h"

namespace skiff::service {

// The engine's sink pushes into the queue; its close() ends the service's output thread.
//
// Use: make the queue, start the Llm with [queue](auto events) { queue->push(std::move(events)); },
// then make the service. Destroy (or stop) the service before the Llm.
class EngineService : public Service {
 public:
  // `chat_template` may be null: conversations are then refused. `observer` may be null; it is told
  // of requests that have a tag.
  EngineService(ServiceConfig config, EnginePort& engine, std::shared_ptr<EventQueue> events,
                std::shared_ptr<const text::Tokenizer> tokenizer,
                std::shared_ptr<const text::ChatTemplate> chat_template,
                std::shared_ptr<RequestObserver> observer = nullptr);
  ~EngineService() override;  // calls stop()

  Result<std::vector<Prepared>> prepare_all(Request common,
                                            std::vector<PromptInput> prompts) const override;
  Result<std::vector<Token>> tokenize(const Request& request) const override;
  RequestId start(Prepared prepared, Sink sink) override;
  std::optional<Overload> overloaded(std::span<const Prepared> requests) override;
  bool queue_full() const override;
  int refused(Refusal reason) override;
  void cancel(RequestId id) override;
  std::vector<Aborted> abort(AbortWish wish) override;
  std::vector<Aborted> pause(Ending ending) override;
  void resume() override;
  bool paused() const override;
  // How requests are kept out while memory is given back or weights are replaced. Lives as long as
  // the service.
  Upkeep::Door door();
  void forget_prefixes() override;
  const text::Tokenizer& tokenizer() const override;
  int max_model_len() const override;
  const PooledModel* pooled_model() const override;
  Status health() const override;
  ServiceLoad load() const override;
  std::string metrics_of(std::optional<int> replica) const override;

  // Cancels all requests and ends the output thread. Idempotent.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff::service
