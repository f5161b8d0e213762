#include "model/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/load_error.h"
#include "model/golden_cases_testing.h"
#include "model/kv_cache.h"
#include "model/model_testing.h"

namespace skiff::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kMiB = size_t{1} << 20;

ModelSpec spec() { return testing::TestModel("LlamaForCausalLM").config().spec; }

const Ops& reference() {
  static const std::unique_ptr<Ops> ops = make_reference_ops();
  return *ops;
}

MemoryRequest request(size_t available) {
  return {.ops = reference(),
          .max_rows = 64,
          .max_logit_rows = 8,
          .max_seqs = 4,
          .max_model_len = 130,
          .available = available};
}

TEST(MemoryPlan, CountsParameters) {
  // embed and head 40*16 each, final norm 16; a layer: 2 norms, q and o 16*16, k and v 8*16,
  // three MLP matrices 24*16.
  EXPECT_EQ(parameter_count(spec()), 2u * 640 + 16 + 2 * (32 + 512 + 256 + 1152));
}

TEST(MemoryPlan, KvBlockBytes) {
  // 2 layers, keys and values, 64 positions, 2 heads of 4, f32.
  EXPECT_EQ(KvCache::bytes_per_block(spec(), 64, {.dtype = DType::kF32}), 2u * 2 * 64 * 2 * 4 * 4);
  EXPECT_EQ(KvCache::bytes_per_block(spec(), 64, {.dtype = DType::kBF16}), 2u * 2 * 64 * 2 * 4 * 2);
}

// Replicas share the weights and nothing else.
TEST(MemoryPlan, ReplicasDivideWhatTheWeightsLeave) {
  const MemoryPlan one = plan_memory(spec(), request(64 * kMiB));
  MemoryRequest asked = request(64 * kMiB);
  asked.replicas = 3;
  const MemoryPlan roomy = plan_memory(spec(), asked);
  EXPECT_EQ(roomy.blocks, one.blocks) << "as many as are wanted";
  EXPECT_EQ(roomy.total(), one.weights + 3 * (one.total() - one.weights));
  EXPECT_THAT(roomy.table(), HasSubstr("the weights once, the rest for each of 3 replicas"));
  const size_t fixed = one.weights + 3 * (one.total() - one.weights - one.kv);
  asked.available = fixed + size_t{3} * 7 * one.kv_block + one.kv_block;
  EXPECT_EQ(plan_memory(spec(), asked).blocks, 7);
  asked.available = fixed + 3 * one.kv_block;
  try {
    plan_memory(spec(), asked);
    ADD_FAILURE() << "too little for three";
  } catch (const LoadError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("in each of 3 replicas"), HasSubstr("--data-parallel-size")));
  }
}

// To the byte: what is loaded on a backend is what its plan has said.
TEST(MemoryPlan, WeightsAreWhatLoadingTakes) {
  for (const std::string& name : testing::golden_names(false)) {
    const std::string dir = testing::golden_dir(name);
    const ModelConfig config = read_model_config(dir);
    for (const auto& ops : {make_reference_ops(), make_cpu_ops(1)}) {
      for (const DType compute : {DType::kF32, DType::kBF16}) {
        const MemoryPlan plan = plan_memory(
            config.spec,
            {.ops = *ops, .precision = uniform_precision(compute), .available = 256 * kMiB});
        const LoadedModel model = load_model(
            dir, config, {.precision = uniform_precision(compute), .progress = {}}, *ops);
        EXPECT_EQ(plan.weights, model.bytes) << name << " on " << ops->name();
      }
    }
  }
}

// A way out that would be refused is none.
TEST(MemoryPlan, LatentsAreToldToTakeFp8) {
  const ModelConfig config = read_model_config(testing::golden_dir("deepseek_v3"));
  const auto ops = make_cpu_ops(1);
  const auto refusal = [&](const ModelSpec& of) -> std::string {
    try {
      plan_memory(of, {.ops = *ops, .precision = uniform_precision(DType::kF32), .available = 1});
      return "planned";
    } catch (const LoadError& e) {
      return e.what();
    }
  };
  EXPECT_THAT(refusal(config.spec), HasSubstr("--kv-cache-dtype fp8"));
  EXPECT_THAT(refusal(spec()), HasSubstr("--kv-cache-dtype int8"));
}

TEST(MemoryPlan, EnoughMemoryGivesEverySequenceItsLength) {
  const MemoryPlan plan = plan_memory(spec(), request(64 * kMiB));
  EXPECT_EQ(plan.blocks, 4 * 3);  // 130 positions are 3 blocks of 64
  EXPECT_EQ(plan.kv, static_cast<size_t>(plan.blocks) * plan.kv_block);
  EXPECT_LE(plan.total(), plan.available);
  EXPECT_THAT(plan.table(),
              AllOf(HasSubstr("weights"), HasSubstr("12 blocks"), HasSubstr("available")));
}

TEST(MemoryPlan, TellsWhatTheNumberIsOf) {
  MemoryRequest asked = request(64 * kMiB);
  asked.about = "half of a shelf";
  asked.on_host = false;
  EXPECT_THAT(plan_memory(spec(), asked).table(), HasSubstr("stay free; half of a shelf"));
  asked.available = 0;
  try {
    plan_memory(spec(), asked);
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(),
                AllOf(HasSubstr("0.000 GiB are available (half of a shelf)"),
                      HasSubstr("raise --gpu-memory-utilization"), HasSubstr("nvidia-smi")));
  }
}

TEST(MemoryPlan, ScarceMemoryGivesFewerBlocks) {
  const MemoryPlan rich = plan_memory(spec(), request(64 * kMiB));
  const size_t fixed = rich.weights + rich.activations;
  EXPECT_EQ(plan_memory(spec(), request(fixed + 7 * rich.kv_block + 1)).blocks, 7);
  EXPECT_EQ(plan_memory(spec(), request(fixed + 3 * rich.kv_block)).blocks, 3);
  EXPECT_THROW(plan_memory(spec(), request(fixed + 3 * rich.kv_block - 1)), LoadError);
  EXPECT_THROW(plan_memory(spec(), request(0)), LoadError);
}

TEST(MemoryPlan, OverrideIsObeyedOrRefused) {
  MemoryRequest r = request(64 * kMiB);
  r.num_blocks_override = 5;
  EXPECT_EQ(plan_memory(spec(), r).blocks, 5);
  r.num_blocks_override = 1'000'000'000;
  try {
    plan_memory(spec(), r);
    FAIL() << "a plan beyond the memory";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(),
                AllOf(HasSubstr("--max-model-len"), HasSubstr("--num-gpu-blocks-override"),
                      HasSubstr("GiB"), HasSubstr("kv cache")));
  }
}

TEST(MemoryPlan, TheHostTierCounts) {
  MemoryRequest r = request(64 * kMiB);
  const MemoryPlan without = plan_memory(spec(), r);
  EXPECT_THAT(without.table(), Not(HasSubstr("host tier")));
  r.host_slots = 10;
  const MemoryPlan with = plan_memory(spec(), r);
  EXPECT_EQ(with.host(), 10 * with.kv_block);
  EXPECT_EQ(with.total(), with.weights + with.activations + with.kv + with.host());
  EXPECT_THAT(with.table(), HasSubstr("host tier"));
  r.host_slots = 1'000'000'000;
  try {
    plan_memory(spec(), r);
    FAIL() << "a plan beyond the memory";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), HasSubstr("--swap-space"));
  }
}

TEST(MemoryPlan, AvailableMemoryIsPlausible) {
  EXPECT_GT(available_memory(), 16 * kMiB);
  EXPECT_LT(available_memory(), size_t{1} << 50);
}

}  // namespace
}  // namespace skiff::model
