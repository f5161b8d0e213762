// apps/splitting_flags.h -- the flags about prefill and decode on different servers.
#pragma once
#include "apps/args.h"
#include "peer/settings.h"

namespace skiff::apps {

// Reads these flags. Throws a UsageError for a flag of another role, a role without what it needs,
// and addresses and ports that are none; a LoadError if the key's file cannot be used.
peer::Settings splitting_settings(const Args& args);

}  // namespace skiff::apps
