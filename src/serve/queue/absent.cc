// Stands in for the Redis client in builds without hiredis (SKIFF_REDIS).
#include "base/load_error.h"
#include "serve/queue/store.h"

namespace skiff::queue {

std::unique_ptr<Store> make_redis_store(const StoreConfig&) {
  throw LoadError(
      "--scheduler-name global: this build has no Redis client; install libhiredis-dev and build "
      "again, or leave the flag out");
}

}  // namespace skiff::queue
