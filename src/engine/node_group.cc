#include "engine/node_group.h"

#include <utility>

#include "arch/shard.h"
#include "base/log.h"
#include "engine/backend.h"
#include "engine/device_nodes.h"
#include "message/wire.h"
#include "model/kv_cache.h"
#include "nodes/rendezvous.h"
#include "ops/kv_quant.h"

namespace skiff::engine {
namespace {

std::vector<nodes::Joined> gather(const nodes::Settings& settings, const peer::Facts& facts) {
  std::vector<nodes::Joined> joined;
  if (settings.node > 0) {
    spdlog::info("node {} of {} joins node 0 at {} port {}", settings.node, settings.nodes,
                 settings.first.host, settings.first.port);
    joined.push_back(nodes::join_first(settings, facts));
    return joined;
  }
  nodes::Door door(settings);
  spdlog::info("node 0 awaits {} more on {} port {}, up to --dist-timeout {:g} s",
               settings.nodes - 1, settings.first.host, door.port(), settings.join_seconds);
  return door.await_all(facts);
}

}  // namespace

peer::Facts node_facts(const Resolved& resolved, const model::ModelConfig& model,
                       const Arithmetic& arithmetic) {
  const sched::Limits& limits = resolved.limits;
  const ModelSpec local = cached_spec(*shard(model.spec, 0, resolved.ranks), resolved.drafter);
  const size_t block_bytes =
      model::KvCache::bytes_per_block(local, resolved.cache.block_size, resolved.precision.kv);
  const bool dummy = resolved.model.format == model::LoadFormat::kDummy;
  peer::Facts facts = {
      {"the number of nodes", std::to_string(resolved.nodes.nodes)},
      {"--tensor-parallel-size", std::to_string(resolved.ranks)},
      {"the version of plans", std::to_string(kWireVersion)},
      {"--dtype", std::string(name(resolved.precision.act))},
      {"--kv-cache-dtype", describe(resolved.precision.kv)},
      {"--load-format", dummy ? "dummy" : "auto"},
      {"--seed of dummy weights", dummy ? std::to_string(resolved.model.seed) : ""}};
  // All ranks run as many passes of what drafts.
  const bool drafts = resolved.drafter.has_value();
  facts.emplace_back("the method of what drafts", drafts ? resolved.speculation->method : "none");
  facts.emplace_back("num_speculative_tokens",
                     std::to_string(drafts ? resolved.speculation->tokens : 0));
  facts.emplace_back("num_model_steps",
                     std::to_string(drafts ? resolved.speculation->model_tokens() : 0));
  const DraftCheck check = resolved.speculation ? resolved.speculation->check : DraftCheck{};
  facts.emplace_back("verify_strategy and its values", describe(check));
  facts.emplace_back("draft_tensor_parallel_size",
                     std::to_string(drafts ? resolved.drafter->part.size : 0));
  for (auto& fact : shared_facts(resolved, arithmetic, block_bytes))
    facts.push_back(std::move(fact));
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, int>>{
           {"--max-num-seqs", limits.max_seqs},
           {"--max-num-batched-tokens", limits.max_rows},
           {"--max-model-len", limits.max_context},
           {"the most rows of logits in a step", limits.max_logit_rows},
           {"the number of blocks in --swap-space", resolved.cache.host_slots}})
    facts.emplace_back(name, std::to_string(value));
  facts.emplace_back("--runner", model.pooling ? "pooling" : "generate");
  for (auto& fact : device_facts(resolved)) facts.push_back(std::move(fact));
  for (const auto& fact : resolved.nodes.facts) facts.push_back(fact);
  return facts;
}

// The backend is made once more for its name, with one thread: the ranks make theirs later.
std::unique_ptr<comm::Nodes> join_nodes(const Resolved& resolved, const model::ModelConfig& model,
                                        const Lost& lost) {
  const nodes::Settings& settings = resolved.nodes;
  if (settings.nodes == 1) return nullptr;
  Resolved one = resolved;
  one.threads = 1;
  const Arithmetic arithmetic{.backend = make_ops(one)->arithmetic(),
                              .build = std::string(sources_digest())};
  std::vector<comm::NodeSocket> sockets;
  for (nodes::Joined& joined : gather(settings, node_facts(resolved, model, arithmetic)))
    sockets.push_back({joined.fd.release(), joined.name});
  spdlog::info("all {} nodes have come; ranks {} to {} of {} are here", settings.nodes,
               resolved.first_rank(), resolved.first_rank() + resolved.ranks_here() - 1,
               resolved.ranks);
  return std::make_unique<comm::Nodes>(comm::NodeGroup{.node = settings.node,
                                                       .nodes = settings.nodes,
                                                       .ranks = resolved.ranks_here(),
                                                       .silence_seconds = settings.silence_seconds,
                                                       .ended = lost},
                                       sockets);
}

}  // namespace skiff::engine
