// workload/serve_bench.h -- replays requests against a server and reports the latencies that its
// clients saw.
#pragma once
#include <string>
#include <vector>

#include "workload/client.h"
#include "workload/trace.h"

namespace skiff::workload {

struct ServeBench {
  std::string model;  // the name under which the server serves it
  bool chat = false;  // /v1/chat/completions if true, else /v1/completions
  // Above 0: prompts are arrays of token ids below it, as /v1/completions takes them, and have
  // exactly the lengths in the trace. 0: prompts are text.
  int prompt_vocab = 0;
  std::vector<TracedRequest> requests;
  uint64_t seed = 0;  // the same requests with another seed have other prompts
  // Requests in flight at any time: the next one is sent when one ends. 0: requests are sent at
  // their times, and latencies count from these.
  int concurrency = 0;
  // Seconds; 0: no bound. A request that meets both counts as good.
  double slo_ttft = 0, slo_tpot = 0;
  bool ignore_eos = true;  // replies have exactly the length in the trace
};

struct Percentiles {
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
Percentiles percentiles_of(const std::vector<double>& values);

// Times are in seconds, lengths in tokens.
struct ServeReport {
  int sent = 0, succeeded = 0, refused = 0, failed = 0, good = 0;  // `refused` counts 429 and 503
  int reopened = 0;   // requests sent again because the server had closed the kept-alive connection
  int unmetered = 0;  // replies without usage: each piece of text counts as one output token
  std::string first_error;  // the first error among the failed requests
  double seconds = 0;       // seconds from the first request to the end of the last
  double prompt = 0, cached = 0, completion = 0;
  Percentiles ttft, tpot, itl, e2e;
  Percentiles lag;  // by how much later requests went out than they were due; 0 with a concurrency
};

// Returns the JSON body of request number `number`. A prompt of text is made of single letters,
// each of which is about one token in every common vocabulary; the server's `usage` has the exact
// number.
std::string request_body(const ServeBench& bench, size_t number);

ServeReport run_serve_bench(LoadClient& client, const ServeBench& bench);

// Formats the report as a table for people.
std::string to_text(const ServeReport& report);
// Formats the report as one JSON object for scripts.
std::string to_json(const ServeReport& report);

}  // namespace skiff::workload
