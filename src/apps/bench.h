// apps/bench.h -- what `skiff bench` measures; each returns the exit code.
#pragma once
#include "apps/commands.h"

namespace skiff::apps {

int bench_steps(const Args& args);     // the time of a step against its rows
int bench_serve(const Args& args);     // measures a running server
int bench_simulate(const Args& args);  // simulates a machine given by its rates

}  // namespace skiff::apps
