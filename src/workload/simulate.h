// workload/simulate.h -- the real scheduler, cache and step loop against a model of time: what a
// machine would do that is not here. Deterministic.
#pragma once
#include <functional>
#include <vector>

#include "sched/scheduler.h"
#include "workload/trace.h"

namespace skiff {

// How long a step takes, by the roofline: the slower of arithmetic and memory, and what every step
// costs besides. Units: seconds, bytes, floating-point operations.
struct StepTime {
  double fixed = 0;                 // of each step
  double flop_per_row = 0;          // of the weights: 2 x parameters that a token uses
  double flop_per_pair = 0;         // of attention: for each row and each token it looks at
  double weight_bytes = 0;          // read once a step
  double kv_bytes = 0;              // of one token over all layers
  double flops = 1, bandwidth = 1;  // what the machine reaches, not what its data sheet says
  double seconds(const StepPlan& plan) const;
};

struct SimulatedRequest {
  double arrived = 0, first_token = 0, finished = 0;  // seconds
  int input = 0, output = 0, cached = 0;              // tokens
  bool refused = false;
};

struct Simulation {
  std::vector<SimulatedRequest> requests;  // in the order of arrival
  double seconds = 0;                      // when all was done
  double busy = 0;                         // of the device
  uint64_t steps = 0, preemptions = 0;
};

struct SimulationSetup {
  Limits limits;
  int num_blocks = 0, block_size = 64;
  size_t depth = 2;  // steps in flight
  StepTime time;
};

// Requests whose input and output do not fit the context are cut to fit.
Simulation simulate(const SimulationSetup& setup, const std::vector<TracedRequest>& requests);

// The value below which a share p of the values lies; 0 if there are none.
double percentile(std::vector<double> values, double p);

}  // namespace skiff
