// serve/service/engine_service.h -- the Service over an engine: requests become sequences, one
// output thread turns the engine's events into text.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "serve/service/admission.h"
#include "serve/service/engine_port.h"
#include "serve/service/event_queue.h"
#include "serve/service/service.h"

namespace skiff {

struct ServiceConfig {
  std::string model_name;     // label of the metrics
  int max_model_len = 0;      // tokens, prompt and output together
  int vocab_size = 0;         // of the model's logits; 0: the tokenizer's
  std::vector<Token> eos;     // any of these ends a reply
  int max_logprobs = 20;      // refuse more best tokens than this per position; -1: any number
  int max_num_seqs = 0;       // of the engine, for the metrics
  double stuck_seconds = 30;  // without progress while work waits: unhealthy
  // The seed of requests that give none starts here; 0: from the system's entropy.
  uint64_t seed = 0;
  AdmissionLimits admission;
  // The replies to one call may hold no more log-probabilities than this; 0: any number.
  int64_t max_reply_logprobs = int64_t{4} << 20;
  std::map<std::string, std::string> cache_info;  // labels of the metric cache_config_info
};

// The engine's sink pushes into the queue; its close() ends the service's output thread.
//
// Use: make the queue, start the Llm with [queue](auto events) { queue->push(std::move(events)); },
// then make the service. Destroy (or stop) the service before the Llm.
class EngineService : public Service {
 public:
  // `chat_template` may be null: conversations are then refused.
  EngineService(ServiceConfig config, EnginePort& engine, std::shared_ptr<EventQueue> events,
                std::shared_ptr<const Tokenizer> tokenizer,
                std::shared_ptr<const ChatTemplate> chat_template);
  ~EngineService() override;  // stop()

  Result<std::vector<Prepared>> prepare_all(Request common,
                                            std::vector<PromptInput> prompts) const override;
  Result<std::vector<Token>> tokenize(const Request& request) const override;
  RequestId start(Prepared request, Sink sink) override;
  std::optional<Overload> overloaded(std::span<const Prepared> requests) override;
  bool queue_full() const override;
  int refused(Refusal reason) override;
  void cancel(RequestId id) override;
  const Tokenizer& tokenizer() const override;
  int max_model_len() const override;
  Status health() const override;
  ServiceLoad load() const override;
  std::string metrics() const override;

  // Cancels what runs and ends the output thread. Idempotent.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff
