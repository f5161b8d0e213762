// apps/queue_flags.h -- has and reads the flags of the queue that instances share through Redis.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/args.h"
#include "serve/queue/shared_queue.h"

namespace skiff::apps {

// What --scheduler-name global asks for.
struct SharedQueueSettings {
  queue::QueueConfig config;  // all but max_running
  std::unique_ptr<queue::Store> store;
};

// Returns nothing without --scheduler-name global, and logs a warning for each flag of the queue
// that then has no effect. `model` is the served name. Throws UsageError where the flags contradict
// each other, and LoadError where the build has no Redis client or Redis refuses the password or
// the database; a Redis that cannot be reached is no error, because it may come later.
std::optional<SharedQueueSettings> queue_settings(const Args& args, const std::string& model);

}  // namespace skiff::apps
