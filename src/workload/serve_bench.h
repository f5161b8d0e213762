// workload/serve_bench.h -- replays requests against a server and says what its users felt.
#pragma once
#include <string>
#include <vector>

#include "workload/client.h"
#include "workload/trace.h"

namespace skiff {

struct ServeBench {
  std::string model;  // as the server knows it
  bool chat = false;  // else /v1/completions
  std::vector<TracedRequest> requests;
  int concurrency = 0;  // so many at a time, each next one when one ends; 0: at their times
  double slo_ttft = 0, slo_tpot = 0;  // seconds; 0: no bound. A request within both is good.
  bool ignore_eos = true;             // replies of exactly the traced length
};

struct Percentiles {
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
Percentiles percentiles_of(const std::vector<double>& values);

// Seconds and tokens.
struct ServeReport {
  int sent = 0, succeeded = 0, refused = 0, failed = 0, good = 0;  // refused: 429 and 503
  std::string first_error;                                         // of those that failed
  double seconds = 0;  // from the first request to the end of the last
  double prompt = 0, cached = 0, completion = 0;
  Percentiles ttft, tpot, itl, e2e;
};

// The JSON body of request number `number`. The prompt is made of single letters, each of which is
// one token or nearly so in every common vocabulary: what it really was, `usage` tells.
std::string request_body(const ServeBench& bench, size_t number);

ServeReport run_serve_bench(LoadClient& client, const ServeBench& bench);

// A table for people.
std::string to_text(const ServeReport& report);
// One JSON object for scripts.
std::string to_json(const ServeReport& report);

}  // namespace skiff
