// serve/service/replica_metrics.h -- the metrics of each replica of an engine, beside those of all.
#pragma once
#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "engine/llm.h"

namespace skiff::service {

// Returns families that have a metric for each replica, with its number as the label "engine":
// fastdeploy:engine_..., and vLLM's names for the same. vLLM's families replace those of the
// same name that have only the sum.
std::vector<prometheus::MetricFamily> replica_families(
    const std::string& model_name, const std::vector<engine::EngineStats>& replicas);

}  // namespace skiff::service
