#include "engine/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <limits>

#include <thread>

#include "arch/cost.h"
#include "base/load_error.h"
#include "base/processors.h"
#include "engine/backend.h"
#include "engine/model_testing.h"
#include "model/kv_cache.h"
#include "tensor/device_memory.h"

namespace skiff::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

model::ModelConfig model_of(int max_context, const std::string& dtype = "") {
  model::ModelConfig model;
  model.spec.max_context = max_context;
  model.dtype = dtype;
  return model;
}

std::string refusal_of_nodes(const std::string& device, int ranks, int nodes) {
  EngineConfig config{.device = device, .tensor_parallel = ranks};
  config.nodes.nodes = nodes;
  try {
    resolve(config, model_of(1024));
  } catch (const LoadError& error) {
    return error.what();
  }
  return "";
}

// There are never so many devices that any follow the 120th.
TEST(Resolve, NodesWithTooFewDevicesAreRefused) {
  EXPECT_THAT(
      refusal_of_nodes("cuda:120", 4, 2),
      testing::AllOf(HasSubstr("--tensor-parallel-size 4 on 2 nodes"),
                     HasSubstr("each node 2 ranks, but there are 0 CUDA devices from cuda:120"),
                     HasSubstr("use --device cpu")));
  EXPECT_THAT(refusal_of_nodes("cuda:120", 3, 2),
              testing::AllOf(HasSubstr("--tensor-parallel-size is 3"), HasSubstr("2 nodes")));
}

TEST(Resolve, ThreadsFollowTheAffinityMask) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(resolve({}, model_of(1024)).threads, 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

// The affinity as set by taskset or by a container.
TEST(Resolve, ThreadsFollowAffinity) {
  int threads = 0;
  std::thread([&] {
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
      if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    threads = resolve({}, model_of(100)).threads;
  }).join();
  EXPECT_EQ(threads, 1);
}

TEST(Resolve, ZerosBecomeNumbers) {
  const model::ModelConfig model = model_of(131072);
  const auto limits = [&](const EngineConfig& config) { return resolve(config, model).limits; };
  EXPECT_EQ(limits({}).max_context, 32768);
  EXPECT_EQ(limits({}).max_rows, 8192);
  EXPECT_EQ(resolve({}, model).threads, usable_processors());
  EXPECT_EQ(resolve({.threads = 7}, model).threads, 7);
  EXPECT_EQ(limits({.max_model_len = 1000}).max_rows, 1000);
  EXPECT_EQ(limits({.max_model_len = 100}).max_rows, 512);
  EXPECT_EQ(limits({.max_model_len = 1000, .chunked_prefill = false}).max_rows, 1008);
  EXPECT_EQ(limits({.max_model_len = 100000}).max_context, 100000);
  const sched::Policy no_aim{.step_seconds = std::numeric_limits<double>::infinity()};
  EXPECT_EQ(limits({.max_model_len = 100000, .policy = no_aim}).policy.long_prompt, 4000);
  EXPECT_EQ(limits({.max_model_len = 1000, .policy = no_aim}).policy.long_prompt, 512);
  EXPECT_EQ(limits({.policy = {.long_prompt = 9}}).policy.long_prompt, 9);
}

// A device without a number, a type without a name, a limit of 0: what EngineConfig says with them
// is decided here, and nobody who reads a Resolved has to decide it again.
TEST(Resolve, ADefaultConfigIsFullyDetermined) {
  const DummyFolder folder("resolve");
  const EngineConfig asked{.model = folder.path()};
  const model::ModelConfig model = model::read_model_config(asked.model);
  const Resolved resolved = resolve(asked, model);
  EXPECT_EQ(resolved.model.folder, folder.path());
  EXPECT_EQ(resolved.model.config_name, "config.json");
  EXPECT_EQ(resolved.device, device_named(num_cuda_devices() > 0 ? "cuda:0" : "cpu"));
  EXPECT_GT(resolved.threads, 0);
  EXPECT_TRUE(resolved.gather) << "the model has no experts";
  EXPECT_EQ(resolved.precision, Precision{}) << "the checkpoint is float32";
  EXPECT_TRUE(num_cuda_devices() > 0 || resolved.limits.max_seqs == 8);
  EXPECT_GE(resolved.limits.max_seqs, 8);
  EXPECT_EQ(resolved.limits.max_rows, 512);
  EXPECT_EQ(resolved.limits.max_context, 256);
  EXPECT_GE(resolved.limits.max_logit_rows, resolved.limits.max_seqs);
  EXPECT_EQ(resolved.limits.vocab, 97);
  EXPECT_TRUE(resolved.measures_steps);
  EXPECT_EQ(resolved.limits.policy.long_prompt, 0) << "follows from what a step costs";
  EXPECT_EQ(resolved.limits.policy.row_context, doubling_context(model.spec));
  EXPECT_GT(resolved.limits.policy.row_context, 0);
  EXPECT_EQ(resolved.cache.block_size, 64);
  EXPECT_EQ(resolved.cache.num_blocks, std::nullopt) << "the memory plan decides";
  EXPECT_EQ(resolved.cache.host_slots, 0) << "there is no lower tier";
  EXPECT_FALSE(resolved.cache.spill);
  EXPECT_EQ(resolved.captures.empty(), num_cuda_devices() == 0);
  EXPECT_EQ(resolved.steps_in_flight, 2);
  EXPECT_EQ(resolved.memory_utilization, 0.9);
}

TEST(Resolve, OneTypeBecomesAPrecision) {
  const auto precision = [](std::optional<DType> asked, const std::string& stored) {
    return resolve({.dtype = asked}, model_of(100, stored)).precision;
  };
  const auto all = [](DType t) { return Precision{.weights = {t}, .act = t, .kv = {t}}; };
  EXPECT_EQ(precision({}, ""), all(DType::kF32));
  EXPECT_EQ(precision({}, "float32"), all(DType::kF32));
  EXPECT_EQ(precision({}, "bfloat16"), all(DType::kBF16));
  EXPECT_EQ(precision({}, "float16"), all(DType::kBF16));
  EXPECT_EQ(precision(DType::kF32, "bfloat16"), all(DType::kF32));
  EXPECT_EQ(precision(DType::kBF16, "float32"), all(DType::kBF16));
}

TEST(Resolve, QuantizationIsChosenByNameAndConfiguration) {
  const Resolved resolved = resolve(
      {.quantization = "int4", .quantization_config = R"({"head": "wint8"})"}, model_of(100));
  EXPECT_EQ(resolved.schemes.describe(), "wint8 for head; int4 for attention, dense, experts");
  EXPECT_FALSE(resolve({}, model_of(100)).schemes.any());
  EXPECT_THROW(resolve({.quantization = "int3"}, model_of(100)), LoadError);
}

// The result depends on the device that computes, not on the word that chose it.
TEST(Resolve, ADeviceIsAValue) {
  const auto device = [&](const char* wanted) {
    return resolve({.device = wanted, .max_model_len = 50}, model_of(100)).device;
  };
  EXPECT_EQ(device("cpu"), ComputeDevice{.kind = ComputeDevice::kCpu});
  EXPECT_EQ(device("reference"), ComputeDevice{.kind = ComputeDevice::kReference});
  EXPECT_EQ(device("auto"), device(num_cuda_devices() > 0 ? "cuda:0" : "cpu"));
  EXPECT_EQ(device("cuda:3"), (ComputeDevice{.kind = ComputeDevice::kCuda, .index = 3}));
  EXPECT_EQ(device("cuda"), ComputeDevice{.kind = ComputeDevice::kCuda});
  for (const char* word : {"cpu", "reference", "cuda:3"}) EXPECT_EQ(name(device(word)), word);
  EXPECT_EQ(name(device("gpu")), "cuda:0");
  EXPECT_EQ(device("cuda:3").memory(), (Device{Device::kCuda, 3}));
  EXPECT_EQ(device("reference").memory(), Device{});
  for (const char* word : {"abacus", "cuda:", "cuda:x", "cuda:1x", "cuda:999", ""})
    EXPECT_THROW(device(word), LoadError) << word;
}

TEST(Resolve, OnlyADeviceOfItsOwnRecordsSteps) {
  const auto captures = [](const EngineConfig& config) {
    return resolve(config, model_of(100)).captures;
  };
  EXPECT_THAT(captures({.device = "cpu"}), ElementsAre());
  EXPECT_THAT(captures({.device = "cuda:0", .graphs = false}), ElementsAre());
  EXPECT_THAT(captures({.device = "cuda:0", .max_num_seqs = 8}), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(captures({.device = "cuda:0", .max_num_seqs = 19}), ElementsAre(1, 2, 4, 8, 16, 19));
  EXPECT_THAT(captures({.device = "cuda:0", .capture_sizes = {6, 3, 3, 100}, .max_num_seqs = 8}),
              ElementsAre(3, 6, 8));
  EXPECT_EQ(captures({.device = "cuda:0", .max_num_seqs = 1024}).back(), 1024);
  EXPECT_EQ(captures({.device = "cuda:0", .max_num_seqs = 2000}).back(), 1024);
}

TEST(Resolve, StepsAreMeasuredWhereTheyHaveAnAim) {
  const auto measures = [](const EngineConfig& config) {
    return resolve(config, model_of(100)).measures_steps;
  };
  EXPECT_TRUE(measures({.device = "cpu"}));
  EXPECT_TRUE(measures({.device = "cuda:0", .policy = {.step_seconds = 0.03}}));
  EXPECT_FALSE(measures({.device = "reference"}));
  EXPECT_FALSE(measures({.device = "cpu", .chunked_prefill = false}));
  EXPECT_FALSE(measures(
      {.device = "cpu", .policy = {.step_seconds = std::numeric_limits<double>::infinity()}}));
  EXPECT_THROW(measures({.device = "cpu", .policy = {.step_seconds = -1}}), LoadError);
}

TEST(Resolve, TheNumberOfSequencesIsWhatIsAskedForOrSuitsTheDevice) {
  const auto seqs = [](const EngineConfig& config) {
    return resolve(config, model_of(100)).limits.max_seqs;
  };
  EXPECT_EQ(seqs({.device = "cpu"}), 8);
  EXPECT_EQ(seqs({.device = "cpu", .max_num_seqs = 3}), 3);
  EXPECT_EQ(seqs({.device = "cuda:0", .max_num_seqs = 8}), 8) << "given means given";
  EXPECT_EQ(seqs({.device = "cuda:0"}), num_cuda_devices() > 0 ? 256 : 8) << "a tiny model";
  EXPECT_EQ(seqs({.device = "cuda:99"}), 8) << "the backend refuses it";
}

TEST(Resolve, ExpertsAreNotGathered) {
  model::ModelConfig model = model_of(100);
  model.spec.layers = {Layer{.ffn = Dense{}}, Layer{.ffn = Dense{}}};
  EXPECT_TRUE(resolve({}, model).gather);
  EXPECT_FALSE(resolve({.fuse_single_row = false}, model).gather);
  model.spec.layers.back().ffn = Moe{};
  EXPECT_FALSE(resolve({}, model).gather);
}

TEST(Resolve, HostBackendsAreBatchInvariantAnyway) {
  const model::ModelConfig model = model_of(100);
  for (const bool asked : {false, true}) {
    const Resolved resolved = resolve({.device = "reference", .batch_invariant = asked}, model);
    EXPECT_EQ(resolved.batch_invariant, asked);
    EXPECT_TRUE(make_ops(resolved)->batch_invariant());
  }
}

TEST(Resolve, HostSlotsHoldTheSwapSpaceAndAContext) {
  const DummyFolder folder("slots");
  EngineConfig config{.model = folder.path(), .max_model_len = 200, .storage_gb = 1};
  const model::ModelConfig model = model::read_model_config(config.model);
  const auto slots = [&] { return resolve(config, model).cache.host_slots; };
  EXPECT_EQ(slots(), 0);
  config.storage_path = "/somewhere";
  EXPECT_EQ(slots(), 4 + 32) << "a context of 200 tokens, and some besides";
  EXPECT_EQ(resolve(config, model).cache.storage_bytes, uint64_t{1} << 30);
  const size_t block =
      model::KvCache::bytes_per_block(model.spec, config.block_size, {.dtype = DType::kF32});
  config.swap_space_gb = 100.5 * static_cast<double>(block) / kBytesPerGb;
  EXPECT_EQ(slots(), 100);
  config.storage_path.clear();
  EXPECT_EQ(slots(), 100);
  EXPECT_TRUE(resolve(config, model).cache.spill);
}

// Its blocks are in the form of one rank, in which a head that several ranks have is there once.
TEST(Resolve, TheShelfFillsItsBufferWhateverTheRanks) {
  std::string even = kSmallLlama;
  even.replace(even.find("97"), 2, "96");  // a vocabulary that four ranks can share out
  const DummyFolder folder("shelf", even);
  EngineConfig config{.model = folder.path(), .device = "cpu"};
  config.peers.role = peer::Role::kPrefill;
  const model::ModelConfig model = model::read_model_config(config.model);
  const size_t block =
      model::KvCache::bytes_per_block(model.spec, config.block_size, {.dtype = DType::kF32});
  config.peers.buffer_gb = 100.5 * static_cast<double>(block) / kBytesPerGb;
  for (const int ranks : {1, 2, 4}) {
    config.tensor_parallel = ranks;
    EXPECT_EQ(resolve(config, model).cache.shelf_blocks, 100) << ranks << " ranks";
  }
}

TEST(Resolve, PlanAndBackendFollowTheResolved) {
  const DummyFolder folder("request");
  const EngineConfig config{.model = folder.path(),
                            .device = "reference",
                            .dtype = DType::kBF16,
                            .block_size = 16,
                            .num_blocks_override = 77};
  const model::ModelConfig model = model::read_model_config(config.model);
  const Resolved resolved = resolve(config, model);
  const auto ops = make_ops(resolved);
  EXPECT_THAT(ops->arithmetic(), HasSubstr("reference"));
  const model::MemoryRequest request = memory_request(resolved, model.spec, *ops);
  EXPECT_EQ(request.precision, resolved.precision);
  EXPECT_EQ(request.max_rows, 512);
  EXPECT_EQ(request.max_model_len, 256);
  EXPECT_EQ(request.num_blocks_override, 77);
  EXPECT_EQ(model::plan_memory(model.spec, request).blocks, 77);
  EXPECT_THAT(minimum_need(resolved, model.spec), HasSubstr("one sequence of --max-model-len 256"));
}

// Smaller elements give more blocks of the same memory: slots of host memory follow, as the plan
// does.
TEST(Resolve, TheCacheMayHaveADtypeOfItsOwn) {
  const DummyFolder folder("kv_dtype");
  EngineConfig config{.model = folder.path(), .dtype = DType::kBF16, .swap_space_gb = 0.01};
  const model::ModelConfig model = model::read_model_config(config.model);
  EXPECT_EQ(resolve(config, model).precision, uniform_precision(DType::kBF16));
  const int plain = resolve(config, model).cache.host_slots;
  for (const DType dtype : {DType::kI8, DType::kF8E4M3, DType::kU4}) {
    config.kv_dtype = dtype;
    const Resolved resolved = resolve(config, model);
    EXPECT_EQ(resolved.precision.act, DType::kBF16);
    EXPECT_EQ(resolved.precision.kv.dtype, dtype);
    EXPECT_EQ(resolved.precision.kv.zero, dtype == DType::kU4);
    EXPECT_GT(resolved.cache.host_slots, plain * 3 / 2);
  }
}

TEST(Resolve, AContextWithoutRoomForOutputIsRefused) {
  try {
    resolve({.model = "m"}, model_of(1));
    FAIL();
  } catch (const LoadError& error) {
    EXPECT_THAT(error.what(), HasSubstr("m/config.json: max_position_embeddings is 1"));
  }
}

TEST(Resolve, DraftsGetRowsOfLogitsAndAMeasuredCost) {
  model::ModelConfig model = model_of(1024);
  EngineConfig config{.device = "cpu", .max_num_seqs = 64};
  config.policy.step_seconds = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(resolve(config, model).measures_steps);
  config.speculation = {.method = "ngram", .tokens = 4};
  const Resolved resolved = resolve(config, model);
  EXPECT_TRUE(resolved.measures_steps) << "without an aim, too";
  EXPECT_EQ(resolved.speculation, config.speculation);
  EXPECT_EQ(resolved.limits.max_logit_rows, 64 * 5);
  config.max_num_seqs = 500;
  EXPECT_EQ(resolve(config, model).limits.max_logit_rows, 500 + 256);

  const auto refusal = [&](const draft::Settings& settings) -> std::string {
    config.speculation = settings;
    try {
      resolve(config, model);
    } catch (const LoadError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal({.method = "medusa"}), HasSubstr("no method \"medusa\""));
  EXPECT_THAT(refusal({.method = "mtp"}), HasSubstr("needs a model that has an MTP module"));
  EXPECT_THAT(refusal({.method = "draft_model"}), HasSubstr("needs \"model\""));
  EXPECT_THAT(refusal({.method = "draft_model", .model = "/nowhere"}),
              HasSubstr("/nowhere has no config.json"));
  EXPECT_THAT(refusal({.method = "ngram", .tokens = 17}),
              HasSubstr("num_speculative_tokens is 17"));
  EXPECT_THAT(refusal({.method = "ngram", .tokens = 3, .model_steps = 4}),
              HasSubstr("num_model_steps is 4"));
  EXPECT_THAT(refusal({.method = "ngram", .min_ngram = 6}), HasSubstr("min_ngram_size is 6"));
  EXPECT_THAT(refusal({.method = "suffix", .max_factor = 0}), HasSubstr("max_spec_factor is 0"));
  model.pooling.emplace();
  EXPECT_THAT(refusal({.method = "ngram"}), HasSubstr("the model is pooled"));
}

}  // namespace
}  // namespace skiff::engine
