// serve/metrics.h -- what Prometheus scrapes: FastDeploy's names, and vLLM's for the same numbers.
#pragma once
#include <memory>
#include <string>

#include "message/request.h"
#include "serve/engine_port.h"

namespace skiff {

// Safe from any thread. Seconds are of a steady clock.
class Metrics {
 public:
  explicit Metrics(const std::string& model_name);
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
  void request_ended(bool success, double since_arrival);

  // Text format 0.0.4, with the gauges as `stats` has them.
  std::string text(const EngineStats& stats, int max_sequences);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff
