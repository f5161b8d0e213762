// serve/service/metric_names.h -- bounds of histograms, and the other names under which the same
// numbers are told.
#pragma once
#include <string>
#include <vector>

#include "message/request.h"
#include "serve/service/service.h"

namespace skiff {

// FastDeploy's bounds are among each of them; the tails are longer, so that a slow reply is still
// told apart from a very slow one.
const std::vector<double>& first_token_bounds();
const std::vector<double>& token_bounds();
const std::vector<double>& latency_bounds();
const std::vector<double>& count_bounds();

// Names for vLLM's dashboards; and "_total" behind FastDeploy's counters that its lists write
// without, as Python's Prometheus client puts it there.
std::vector<std::string> aliases_of(const std::string& name);

// Values of the labels finished_reason and reason.
const char* label_of(Finish finish);
const char* label_of(Refusal reason);

}  // namespace skiff
