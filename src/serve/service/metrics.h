// serve/service/metrics.h -- the metrics for Prometheus, under FastDeploy's names and vLLM's.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "message/request.h"
#include "serve/service/engine_port.h"
#include "serve/service/request_observer.h"
#include "serve/service/service.h"

namespace skiff::service {

// Thread-safe. Seconds are differences of a steady clock.
class Metrics {
 public:
  // `cache_info` has the labels of cache_config_info; `drafts` is ServiceConfig::drafts, which is
  // at most DraftStats::kDepths.
  Metrics(const std::string& model_name, std::map<std::string, std::string> cache_info,
          int drafts = 0);
  ~Metrics();

  void request_received(int prompt_tokens, int max_tokens, int n);
  void sequence_admitted(double queued_seconds, int prompt_tokens, int cached_tokens);
  void first_token(double since_arrival, double since_admission);
  void tokens(int count, double seconds_for_all);
  struct Ended {
    Finish finish;
    double since_arrival, since_admission, since_first_token;
    int generated;
  };
  void sequence_ended(const Ended& ended);
  // `longest` is the number of tokens of its longest sequence.
  void request_ended(bool success, double since_arrival, int longest);
  void refused(Refusal reason);
  // The calls of a reply that has ended: those that were read, and those that could not be.
  void tool_calls(int read, int broken);
  // A request to an endpoint, by its path.
  void asked(const std::string& route);
  // A request has ended whose replies were constrained. `kind` is label_of a ConstraintKind.
  void constrained(const std::string& kind, double mask_seconds, uint64_t masks, bool failed);
  void reasoned(int tokens);

  // The state at the time of a scrape.
  struct Now {
    engine::EngineStats engine;
    int number = 0;                             // the replica's, where these are the metrics of one
    std::vector<engine::EngineStats> replicas;  // what `engine` is the sum of; may be empty for one
    int max_sequences = 0;
    int64_t waiting_tokens = 0;  // prompt tokens of sequences that wait for a place in the batch
    int64_t queued_events = 0;   // events between engine and output thread
    RequestObserver::Counts observer;
  };
  // Text format 0.0.4.
  std::string text(const Now& now);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff::service
