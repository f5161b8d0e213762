#include "apps/vllm_node_flags.h"

#include <fmt/format.h>

#include "apps/flag_rows.h"
#include "base/log.h"

namespace skiff::apps {
namespace {

constexpr double kMostReplicas = 128;
using enum Kind;

// Each flag is one line, however long.
// clang-format off

constexpr Flag kFlags[] = {
    {"pipeline-parallel-size", kInt, kSizes, "1", "Only 1: layers are not dealt to stages. --tensor-parallel-size cuts every layer, also over several nodes (docs/scale.md).", 1, 1024, "", "pp"},
    {"data-parallel-size-local", kInt, kServe, "", "Replicas on this node. Here --data-parallel-size is dealt evenly to the nodes of --ips; another number is refused.", 0, kMostReplicas, "", "dpl"},
    {"data-parallel-start-rank", kInt, kServe, "", "Number of this node's first replica among all of them. Here --ips and --node-rank say so; another number is refused.", 0, kMostReplicas, "", "dpr"},
    {"data-parallel-address", kText, kServe, "", "The first address of --ips; another one is refused. Without --ips it has no effect, with a warning.", 0, 0, "", "dpa"},
    {"data-parallel-rpc-port", kInt, kServe, "", "No effect, with a warning: nothing passes between replicas on several nodes. Nodes that share one model meet at --engine-worker-queue-port.", 0, 65535, "", "dpp"},
    {"data-parallel-backend", kChoice, kServe, "mp", "mp: replicas are threads of this process. ray has no effect, with a warning: the same command is started on each node of --ips.", 0, 0, "mp|ray", "dpb"},
    {"headless", kSwitch, kServe, "false", "A node other than the first of those that share one model (--ips, --data-parallel-size 1) opens no port, with it or without. Elsewhere it is refused: every server answers HTTP."},
};

// clang-format on

void check_size(const Args& args, const NodeDuty& duty) {
  if (!args.given("data-parallel-size-local")) return;
  const int64_t local = args.integer("data-parallel-size-local");
  if (local == duty.share.replicas) return;
  throw UsageError(fmt::format(
      "--data-parallel-size-local is {}, but this node runs {} of --data-parallel-size {}: they "
      "are dealt evenly to the nodes of --ips. For nodes with different numbers give each its own "
      "--data-parallel-size, without --ips, and start skiff route in front of them",
      local, duty.share.replicas, duty.all_replicas));
}

void check_rank(const Args& args, const NodeDuty& duty) {
  if (!args.given("data-parallel-start-rank")) return;
  const int64_t rank = args.integer("data-parallel-start-rank");
  const int first = duty.share.spread ? 0 : duty.place.node * duty.share.replicas;
  if (rank == first) return;
  throw UsageError(fmt::format(
      "--data-parallel-start-rank is {}, but the first replica of this node is {}: give "
      "all nodes the same --ips, and this one its place there as --node-rank",
      rank, first));
}

void check_address(const Args& args, const NodeDuty& duty) {
  if (!args.given("data-parallel-address")) return;
  const std::string address = args.text("data-parallel-address");
  if (duty.place.nodes == 1)
    return spdlog::warn(
        "--data-parallel-address has no effect: this is the only node; give the addresses of all "
        "nodes as --ips where there are several");
  if (address == duty.first) return;
  throw UsageError(
      fmt::format("--data-parallel-address is {}, but the first node is {} ({}): leave it out, or "
                  "put that address first in --ips on every node",
                  escaped(address), duty.first, duty.place.source));
}

void check_headless(const Args& args, const NodeDuty& duty) {
  if (!args.on("headless") || (duty.share.spread && duty.place.node > 0)) return;
  if (duty.share.spread)
    throw UsageError(
        "--headless: this is node 0, which serves for all nodes of --ips; leave --headless out");
  throw UsageError(
      "--headless: every node with replicas of its own answers HTTP; leave it out, and start "
      "skiff route in front of the nodes. Nodes that share one model (--ips with "
      "--data-parallel-size 1) open no port but for the first");
}

void warn_of_idle(const Args& args) {
  if (args.given("data-parallel-rpc-port"))
    spdlog::warn(
        "--data-parallel-rpc-port has no effect: nothing passes between replicas on several nodes; "
        "nodes that share one model meet at --engine-worker-queue-port");
  if (args.text("data-parallel-backend") == "ray")
    spdlog::warn(
        "--data-parallel-backend ray has no effect: start the same command with --ips on each "
        "node");
}

}  // namespace

std::span<const Flag> vllm_node_rows() { return kFlags; }

void check_vllm_node_flags(const Args& args, const NodeDuty& duty) {
  check_size(args, duty);
  check_rank(args, duty);
  check_address(args, duty);
  check_headless(args, duty);
  warn_of_idle(args);
}

void refuse_stages(const Args& args) {
  const int64_t stages = args.integer("pipeline-parallel-size");
  if (stages == 1) return;
  throw UsageError(fmt::format(
      "--pipeline-parallel-size is {}, but layers are not dealt to stages here: cut the "
      "model with --tensor-parallel-size {} instead, on several nodes with --ips",
      stages, stages * args.integer("tensor-parallel-size")));
}

}  // namespace skiff::apps
