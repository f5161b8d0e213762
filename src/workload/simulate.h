// workload/simulate.h -- runs the real scheduler, cache and step loop against a model of time, to
// predict a machine that is not at hand. The result is deterministic.
#pragma once
#include <functional>
#include <vector>

#include "sched/scheduler.h"
#include "workload/trace.h"

namespace skiff::workload {

// The duration of a step, by what was measured if that is there, else by the roofline model: the
// longer of arithmetic and memory time, plus a fixed cost. Units: seconds, bytes, floating-point
// operations.
struct StepTime {
  double fixed = 0;          // added to each step
  double flop_per_row = 0;   // products with weights: 2 x the parameters that a token uses
  double flop_per_pair = 0;  // attention: for each pair of a row and a token that it attends to
  double weight_bytes = 0;   // weights read once per step
  double kv_bytes = 0;       // keys and values of one token in all layers
  double flops = 1, bandwidth = 1;  // rates that the machine reaches, not those of its data sheet
  // Measured steps with decodes only, and the others; both or neither.
  sched::StepCost decodes, others;
  double seconds(const StepPlan& plan) const;
};

// What a scheduler on a machine of these times would measure when it starts: `others` if that is
// known, else points of the roofline up to `max_rows`. `doubling`: see sched::StepCost::Context.
sched::StepCost measured_cost(const StepTime& time, int max_rows, int doubling);

struct SimulatedRequest {
  double arrived = 0, first_token = 0, finished = 0;  // seconds
  int input = 0, output = 0, cached = 0;              // tokens
  bool refused = false;
};

struct Simulation {
  std::vector<SimulatedRequest> requests;  // ordered by arrival
  double seconds = 0;                      // when the last request ended
  double busy = 0;                         // time that the device computed
  uint64_t steps = 0, preemptions = 0;
};

struct SimulationSetup {
  sched::Limits limits;
  int num_blocks = 0, block_size = 64;
  size_t depth = 2;  // steps in flight
  StepTime time;
};

// Cuts requests whose input and output exceed the context.
Simulation simulate(const SimulationSetup& setup, const std::vector<TracedRequest>& requests);

// Returns the p-quantile of the values; 0 if there are none.
double percentile(std::vector<double> values, double p);

}  // namespace skiff::workload
