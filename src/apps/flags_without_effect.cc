// Flags of FastDeploy that Skiff will never need: how its processes find each other, and its older
// modes. They are accepted with one warning.

#include "apps/flag_rows.h"

namespace skiff::apps {
namespace {

constexpr double kMaxCount = 1 << 30;
constexpr unsigned kAll = kSizes;
constexpr Standing kNone = Standing::kMeaningless;
using enum Kind;

// Each flag is one line, however long.
// clang-format off

constexpr Flag kFlags[] = {
    {"revision", kText, kAll, "master", "Branch of a model hub; models are local folders here.", 0, 0, "", "", kNone},
    {"controller-port", kInt, kServe, "-1", "Control endpoints are on the main port, behind --admin-key.", -1, 65535, "", "", kNone},
    {"controller-ports", kText, kServe, "-1", "Control endpoints are on the main ports, behind --admin-key.", 0, 0, "", "", kNone},
    {"trace-enable", kSwitch, kServe, "false", "Spans are sent if --otlp-traces-endpoint is given.", 0, 0, "", "", kNone},
    {"model-impl", kText, kAll, "auto", "There is one implementation.", 0, 0, "", "", kNone},
    {"load-choices", kText, kAll, "default_v1", "There is one loader.", 0, 0, "", "", kNone},
    {"use-warmup", kInt, kAll, "0", "Nothing is compiled at run time.", 0, 1, "", "", kNone},
    {"prealloc-dec-block-slot-num-threshold", kInt, kAll, "12", "Blocks are allocated on demand.", 0, kMaxCount, "", "", kNone},
    {"enable-output-caching", kSwitch, kAll, "true", "Generated tokens are always cached.", 0, 0, "", "", kNone},
    {"enable-mm", kSwitch, kServe, "false", "FastDeploy has deprecated it.", 0, 0, "", "", kNone},
    {"tool-parser-plugin", kText, kServe, "", "Parsers are built in; Python is not loaded.", 0, 0, "", "", kNone},
    {"tokenizer-base-url", kText, kServe, "", "The tokenizer is built in.", 0, 0, "", "", kNone},
    {"rdma-comm-ports", kText, kAll, "", "KV blocks go through shared memory on one machine, and over TCP between machines.", 0, 0, "", "", kNone},
    {"cache-queue-port", kText, kAll, "", "There are no such processes here.", 0, 0, "", "", kNone},
    {"skip-port-check", kSwitch, kAll, "false", "There are no such processes here.", 0, 0, "", "", kNone},
    {"timeout", kInt, kServe, "0", "There are no such processes here.", 0, kMaxCount, "", "", kNone},
    {"disable-custom-all-reduce", kSwitch, kAll, "false", "Ranks add up without a library of collectives.", 0, 0, "", "", kNone},
    {"enable-custom-all-reduce", kSwitch, kAll, "true", "Ranks add up without a library of collectives.", 0, 0, "", "", kNone},
    {"use-internode-ll-two-stage", kSwitch, kAll, "false", "Ranks add up without a library of collectives.", 0, 0, "", "", kNone},
    {"disable-sequence-parallel-moe", kSwitch, kAll, "false", "Ranks add up without a library of collectives.", 0, 0, "", "", kNone},
    {"shutdown-comm-group-if-worker-idle", kSwitch, kAll, "false", "There are no such processes here.", 0, 0, "", "", kNone},
    {"scheduler-sync-period", kInt, kServe, "5", "Signs of life and leases in Redis follow --scheduler-lease.", 0, kMaxCount, "", "", kNone},
    {"scheduler-expire-period", kInt, kServe, "3000", "Signs of life and leases in Redis follow --scheduler-lease.", 0, kMaxCount, "", "", kNone},
    {"scheduler-release-load-expire-period", kInt, kServe, "600", "Signs of life and leases in Redis follow --scheduler-lease.", 0, kMaxCount, "", "", kNone},
    {"scheduler-reader-parallel", kInt, kServe, "4", "One connection to Redis writes, and another one reads.", 0, kMaxCount, "", "", kNone},
    {"scheduler-writer-parallel", kInt, kServe, "4", "One connection to Redis writes, and another one reads.", 0, kMaxCount, "", "", kNone},
    {"scheduler-reader-batch-size", kInt, kServe, "200", "One connection to Redis writes, and another one reads.", 0, kMaxCount, "", "", kNone},
    {"scheduler-writer-batch-size", kInt, kServe, "200", "One connection to Redis writes, and another one reads.", 0, kMaxCount, "", "", kNone},
};

// clang-format on

}  // namespace

std::span<const Flag> rows_without_effect() { return kFlags; }

}  // namespace skiff::apps
