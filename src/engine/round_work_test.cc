// What computes a replica's part in a round hands on what it is told of the others.
#include "engine/round_work.h"

#include <gmock/gmock.h>

#include "engine/sharing_testing.h"

namespace skiff::engine {
namespace {

constexpr const char* kTwoMixtures = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 32, "vocab_size": 96, "head_dim": 8,
  "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 256, "torch_dtype": "float32",
  "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 21,
  "norm_topk_prob": true, "rms_norm_eps": 1e-6})";

// Recorded steps and exchanges between devices follow from the rows of all, so every rank must know
// them, in steps of its replica and in rounds without rows.
TEST(RoundWorkTest, EveryRankIsToldTheRowsOfAll) {
  const DummyFolder folder("round_work", kTwoMixtures);
  Sharing group(folder.path(), model::LoadFormat::kDummy, DType::kF32, 2, /*ranks=*/2);
  Model& model = *group.models[0];
  const engine::Setup setup;
  const model::HostBlocks host(model.weights.spec, 0, setup.block_size, model.kv, {}, 2);
  auto meshes = comm::make_thread_meshes(2);
  std::vector<std::shared_ptr<Expecting>> exchanges;
  std::deque<RankOfRun> parts;
  std::vector<GroupRunner::Member> members;
  for (int rank = 0; rank < 2; ++rank) {
    comm::Mesh& mesh = meshes[static_cast<size_t>(rank)];
    mesh.experts = exchanges.emplace_back(std::make_shared<Expecting>());
    parts.emplace_back(model.rank(static_cast<size_t>(rank)), mesh, setup, host.part(rank, 2));
    members.push_back({parts.back().executor, *mesh.tp});
  }
  const auto work = make_round_work(*group.lockstep, 0, members, kOther);
  const StepPlan prompt{.step = 7,
                        .spans = {{.count = 3, .sample = true}},
                        .tokens = {5, 6, 7},
                        .pages = {0},
                        .page_start = {0, 1},
                        .opened = {{.history = {5, 6, 7}, .prompt_len = 3}}};
  const RoundPart five{.seqs = 1, .rows = 5};
  std::vector<RoundPart> round = {part_of(prompt), five};
  work->launch(prompt, round);
  round.assign(2, {});  // the ranks have their own copies
  EXPECT_EQ(work->collect().step, 7u);
  round = {{}, five};
  work->run_empty(round);
  for (const auto& exchange : exchanges)
    EXPECT_THAT(exchange->sums, testing::ElementsAre(8, 8, 6, 6))
        << "two mixtures; a round has a row of each at least";
}

}  // namespace
}  // namespace skiff::engine
