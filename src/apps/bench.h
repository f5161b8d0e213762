// apps/bench.h -- what `skiff bench` measures; each returns the exit code.
#pragma once
#include "apps/commands.h"

namespace skiff {

int bench_serve(const Args& args);     // a running server
int bench_simulate(const Args& args);  // a machine that exists as numbers

}  // namespace skiff
