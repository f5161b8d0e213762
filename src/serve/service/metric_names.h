// serve/service/metric_names.h -- bounds of histograms, and aliases of metrics.
#pragma once
#include <string>
#include <vector>

#include "message/request.h"
#include "serve/service/service.h"

namespace skiff::service {

// Each list contains FastDeploy's bounds; the tails are longer, so that slow replies are
// distinguished from very slow ones.
const std::vector<double>& first_token_bounds();
const std::vector<double>& token_bounds();
const std::vector<double>& latency_bounds();
const std::vector<double>& count_bounds();

// Names that vLLM's dashboards use, those of OpenTelemetry's conventions for generative AI, and
// FastDeploy's counters with "_total", which Python's Prometheus client appends to their names.
std::vector<std::string> aliases_of(const std::string& name);

// Values of the labels finished_reason and reason.
const char* label_of(Finish finish);
const char* label_of(Refusal reason);

}  // namespace skiff::service
