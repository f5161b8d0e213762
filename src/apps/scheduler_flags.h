// apps/scheduler_flags.h -- what FastDeploy's older scheduler (V0), its flags and its environment
// ask for, in terms of the one scheduler that is here.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "apps/args.h"
#include "engine/llm.h"

namespace skiff {

// The value of a variable, or null.
using Environment = std::function<const char*(const char* name)>;

// Sets what has a counterpart; returns one warning for each wish, saying what became of it. Throws
// UsageError for values that are out of range or contradict each other.
std::vector<std::string> apply_scheduler_flags(const Args& args, const Environment& environment,
                                               EngineConfig& config);

// --max-waiting-tokens, --max-waiting-time and --request-timeout against each other. Throws
// UsageError.
void check_admission_flags(const Args& args);

}  // namespace skiff
