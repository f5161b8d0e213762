#include "apps/queue_flags.h"

#include <fmt/format.h>

#include <fstream>
#include <utility>

#include "apps/flag_rows.h"
#include "base/load_error.h"
#include "base/log.h"
#include "base/random.h"

namespace skiff::apps {
namespace {

constexpr double kMaxCount = 1 << 30;
using enum Kind;

// Each flag is one line, however long.
// clang-format off

constexpr Flag kFlags[] = {
    {"scheduler-name", kChoice, kServe, "local", "global: instances of the same model share their requests through Redis: what finds no room where it came in is computed by whichever instance has room (docs/shared_queue.md). splitwise, FastDeploy's older way for prefill and decode apart, is refused: see skiff route --splitwise.", 0, 0, "local|global|splitwise"},
    {"scheduler-host", kText, kServe, "127.0.0.1", "global: name or address of the Redis server."},
    {"scheduler-port", kInt, kServe, "6379", "global: port of the Redis server.", 1, 65535},
    {"scheduler-db", kInt, kServe, "0", "global: number of the database there.", 0, kMaxCount},
    {"scheduler-password", kText, kServe, "", "global: password of the Redis server. Other users of this machine see it in the list of processes; see --scheduler-password-file."},
    {"scheduler-password-file", kText, kServe, "", "global: a file whose first line is that password."},
    {"scheduler-topic", kText, kServe, "default", "global: instances share requests with those of the same topic and the same served model name, and with no others."},
    {"scheduler-max-size", kInt, kServe, "-1", "global: requests of this instance that may wait in Redis; further ones wait here, or are refused, as without it. -1: any number.", -1, kMaxCount},
    {"scheduler-ttl", kInt, kServe, "900", "global: seconds after which a request that still waits is answered 503, and after which Redis forgets a request of which it hears nothing.", 1, kMaxCount},
    {"scheduler-min-load-score", kInt, kServe, "3", "global: others take requests only of instances that have at least this many unfinished ones.", 0, kMaxCount},
    {"scheduler-load-shards-num", kInt, kServe, "1", "global: sorted sets over which Redis spreads the loads of instances; the same for all of them.", 1, 1024},
    {"scheduler-lease", kFloat, kServe, "10", "global: seconds of silence after which an instance counts as lost; what it computes for others then comes back, once.", 0.5, 300},
};

// clang-format on

std::string password(const Args& args) {
  const std::string file = args.text("scheduler-password-file");
  if (file.empty()) return args.text("scheduler-password");
  if (args.given("scheduler-password"))
    throw UsageError("--scheduler-password and --scheduler-password-file: give one of them");
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line) || line.empty())
    throw LoadError(
        fmt::format("--scheduler-password-file {}: it cannot be read, or is empty", file));
  return line;
}

void warn_of_idle_flags(const Args& args) {
  for (const Flag& flag : kFlags)
    if (flag.name != "scheduler-name" && args.given(flag.name))
      spdlog::warn("--{} has no effect without --scheduler-name global", flag.name);
}

queue::StoreConfig store_config(const Args& args, const std::string& model) {
  return {.host = args.text("scheduler-host"),
          .port = static_cast<int>(args.integer("scheduler-port")),
          .db = static_cast<int>(args.integer("scheduler-db")),
          .password = password(args),
          .topic = args.text("scheduler-topic"),
          .model = model,
          .instance = fmt::format("{:016x}", random_seed()),
          .request_seconds = static_cast<double>(args.integer("scheduler-ttl")),
          .lease_seconds = args.number("scheduler-lease"),
          .min_load = static_cast<int>(args.integer("scheduler-min-load-score")),
          .load_shards = static_cast<int>(args.integer("scheduler-load-shards-num"))};
}

}  // namespace

std::span<const Flag> queue_rows() { return kFlags; }

std::optional<SharedQueueSettings> queue_settings(const Args& args, const std::string& model) {
  const std::string name = args.text("scheduler-name");
  if (name == "splitwise")
    throw UsageError(
        "--scheduler-name splitwise: prefill and decode servers meet at a router and not in Redis; "
        "see skiff route --splitwise and docs/disaggregation.md");
  if (name != "global") {
    warn_of_idle_flags(args);
    return std::nullopt;
  }
  if (args.text("splitwise-role") != "mixed")
    throw UsageError(
        "--scheduler-name global with --splitwise-role: a request of a prefill or decode server "
        "belongs to that server; leave one of the flags out");
  SharedQueueSettings settings;
  settings.config.store = store_config(args, model);
  settings.config.max_waiting = static_cast<int>(args.integer("scheduler-max-size"));
  settings.config.max_body = static_cast<size_t>(args.integer("max-body-size"));
  settings.store = queue::make_redis_store(settings.config.store);
  if (const Status good = settings.store->connect(); !good && good.error().code == Code::kInvalid)
    throw LoadError("--scheduler-name global: " + good.error().what);
  return settings;
}

}  // namespace skiff::apps
