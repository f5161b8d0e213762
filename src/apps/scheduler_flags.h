// apps/scheduler_flags.h -- has and reads the flags of the scheduler's policy, and maps the flags
// and environment variables of FastDeploy's older scheduler (V0) to it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "apps/args.h"
#include "engine/llm.h"

namespace skiff::apps {

// Returns the value of an environment variable, or null.
using Environment = std::function<const char*(const char* name)>;

// Sets config.policy. Returns one warning for each flag or variable of the older scheduler, which
// says how it was applied. Throws UsageError for values that are out of range or contradict each
// other.
std::vector<std::string> apply_scheduler_flags(const Args& args, const Environment& environment,
                                               engine::EngineConfig& config);

// Checks --max-waiting-time against --request-timeout. Throws UsageError.
void check_admission_flags(const Args& args);

}  // namespace skiff::apps
