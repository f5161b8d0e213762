// Memory of CUDA devices that is given back and taken again at its addresses, under steps that were
// recorded before, and weights that are replaced there: on one device, on two as ranks, and as
// replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>

#include "engine/model_testing.h"
#include "engine/residency_testing.h"
#include "ops/cuda/backend.h"
#include "tensor/device_memory.h"
#include "tensor/returned_memory.h"

namespace skiff::engine {
namespace {

using testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;
constexpr double kOfDriver = 4 * kMiB;  // what a driver may take or free for itself meanwhile
constexpr Device kDevice{Device::kCuda, 0};

// Experts and the head take more than a unit of memory, even a rank's half of them; norms, routers
// and attention less.
constexpr char kMixture[] = R"({
  "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "hidden_act": "silu",
  "hidden_size": 512, "intermediate_size": 1024, "max_position_embeddings": 1024,
  "moe_intermediate_size": 256, "moe_k": 3, "moe_layer_start_index": 1, "moe_layer_end_index": 3,
  "moe_layer_interval": 1, "moe_norm_min": 1e-12, "moe_num_experts": 16,
  "moe_num_shared_experts": 2, "num_attention_heads": 4, "num_hidden_layers": 4,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 5000.0, "use_bias": false,
  "tie_word_embeddings": false, "vocab_size": 8192, "torch_dtype": "bfloat16"})";

class DeviceMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
    ops_ = make_cuda_ops({});
    ops_->bind_thread();
  }
  std::vector<uint8_t> random_bytes(size_t bytes) {
    std::vector<uint8_t> out(bytes);
    std::ranges::generate(out, [&] { return static_cast<uint8_t>(rng_()); });
    return out;
  }
  static Tensor row_of(std::vector<uint8_t>& bytes) {
    return host_tensor(bytes.data(), DType::kU8, {1, std::ssize(bytes)});
  }
  static Tensor row_of(const Buffer& buffer) {
    return buffer.view(DType::kU8, {1, static_cast<int64_t>(buffer.size())});
  }
  void write(const Buffer& to, std::vector<uint8_t> bytes) {
    ops_->copy(row_of(to), row_of(bytes));
    ops_->wait(ops_->mark());
  }
  std::vector<uint8_t> read(const Buffer& from) {
    std::vector<uint8_t> bytes(from.size());
    ops_->copy(row_of(bytes), row_of(from));
    ops_->wait(ops_->mark());
    return bytes;
  }

  std::mt19937_64 rng_{11};
  std::unique_ptr<Ops> ops_;
};

TEST_F(DeviceMemoryTest, LeavesAndComesBackToItsAddress) {
  const Buffer buffer(kDevice, 64 * kMiB + 12345);
  const std::byte* const at = buffer.data();
  const size_t before = device_memory(kDevice).free;
  EXPECT_EQ(give_back(buffer), 66 * kMiB) << "whole units";
  EXPECT_EQ(device_memory(kDevice).free, before + 66 * kMiB);
  give_back(buffer);
  EXPECT_EQ(device_memory(kDevice).free, before + 66 * kMiB) << "nothing is left to give";
  take_back(buffer);
  EXPECT_EQ(device_memory(kDevice).free, before);
  EXPECT_EQ(buffer.data(), at);
  const auto values = random_bytes(buffer.size());
  write(buffer, values);
  EXPECT_EQ(read(buffer), values);
  EXPECT_GT(give_back(buffer), 0u) << "and is freed while it is gone";
}

TEST_F(DeviceMemoryTest, MovesWithWhatItHolds) {
  const Buffer to(kDevice, 6 * kMiB + 1);
  const std::byte* const at = to.data();
  const size_t before = device_memory(kDevice).free;
  for (const bool gone : {false, true}) {
    if (gone) {
      ASSERT_GT(give_back(to), 0u);
    }
    const Buffer from(kDevice, to.size());
    const auto values = random_bytes(to.size());
    write(from, values);
    ASSERT_TRUE(move_to(to, from));
    EXPECT_EQ(to.data(), at);
    EXPECT_EQ(read(to), values);
    EXPECT_EQ(device_memory(kDevice).free, before) << "one of the two is left";
  }
}

TEST_F(DeviceMemoryTest, SmallOnesStay) {
  const Buffer buffer(kDevice, kMiB), other(kDevice, kMiB);
  const auto values = random_bytes(buffer.size());
  write(buffer, values);
  EXPECT_EQ(give_back(buffer), 0u);
  take_back(buffer);
  EXPECT_FALSE(move_to(buffer, other));
  EXPECT_EQ(read(buffer), values);
}

struct Form {
  const char* name;
  int ranks, replicas;
  bool whole_experts = false;
};

class ResidencyDeviceTest : public ResidencyTest, public testing::WithParamInterface<Form> {
 protected:
  ResidencyDeviceTest() : folder_(std::string("residency_device_") + GetParam().name, kMixture) {
    from_ = std::string(SKIFF_SOURCE_DIR) + "/models/demo";
    config_.model = folder_.path();
    config_.load_format = model::LoadFormat::kDummy;
    config_.device = "cuda";
    config_.threads = 2;
    config_.block_size = 16;
    config_.num_blocks_override = 1024;
    config_.max_num_seqs = 4;
    config_.max_num_batched_tokens = 256;
    config_.capture_sizes = {1, 4};
    config_.tensor_parallel = GetParam().ranks;
    config_.replicas = GetParam().replicas;
    config_.expert_parallel = GetParam().whole_experts;
    config_.policy.step_seconds = std::numeric_limits<double>::infinity();  // nothing is measured
  }
  void SetUp() override {
    if (num_cuda_devices() < devices())
      GTEST_SKIP() << "needs " << devices() << " CUDA devices, there are " << num_cuda_devices();
  }
  static int devices() { return GetParam().ranks * GetParam().replicas; }
  static double free_bytes() {
    double sum = 0;
    for (int index = 0; index < devices(); ++index)
      sum += static_cast<double>(device_memory({Device::kCuda, static_cast<int8_t>(index)}).free);
    return sum;
  }
  // What every replica says after prompt(), which is the same for all.
  Event answers() override {
    std::vector<NewSequence> each;
    for (int i = 0; i < config_.replicas; ++i) {
      llm_->submit(prompt(++last_));
      each.push_back(prompt(last_));
    }
    Event first = ends_.wait(each.front().id);
    for (const NewSequence& one : each) EXPECT_EQ(ends_.wait(one.id).tokens, first.tokens);
    return first;
  }

  const DummyFolder folder_;
};

TEST_P(ResidencyDeviceTest, RecordedStepsGoOnAfterManyCycles) {
  start();
  const Event before = answers();
  ASSERT_EQ(before.tokens.size(), 16u);
  const double awake = free_bytes();
  for (int i = 0; i < 9; ++i) {
    const Parts parts = i % 3 == 0 ? kAll : i % 3 == 1 ? kWeights : kKv;
    const auto given = residency().give_back(parts);
    ASSERT_TRUE(given) << given.error().what;
    if (parts.weights) {
      EXPECT_GT(given->weights, static_cast<size_t>(devices()) * 16 * kMiB);
    }
    if (parts.kv) {
      EXPECT_GT(given->kv, static_cast<size_t>(devices()) * 8 * kMiB);
    }
    EXPECT_NEAR(free_bytes(), awake + static_cast<double>(given->weights + given->kv), kOfDriver);
    EXPECT_EQ(answer().finish, Finish::kExhausted);
    const Status back = residency().take_back(parts);
    ASSERT_TRUE(back) << back.error().what;
    EXPECT_NEAR(free_bytes(), awake, kOfDriver) << "neither more nor less than before";
    const Event after = answers();
    ASSERT_EQ(after.tokens, before.tokens) << "cycle " << i;
    ASSERT_EQ(after.cached, 0) << "the prefix cache is empty";
  }
}

// The first device is filled up meanwhile.
TEST_P(ResidencyDeviceTest, WithoutRoomItSleepsOn) {
  start();
  const Event before = answers();
  ASSERT_TRUE(residency().give_back(kAll));
  {
    std::vector<Buffer> others;
    for (size_t free = 0; (free = device_memory(kDevice).free) > 24 * kMiB;)
      others.emplace_back(kDevice, std::max(kMiB, (free - 16 * kMiB) / 2));
    const Status full = residency().take_back(kAll);
    ASSERT_FALSE(full);
    EXPECT_EQ(full.error().code, Code::kExhausted);
    EXPECT_THAT(full.error().what, HasSubstr("CUDA device 0"));
    EXPECT_EQ(residency().absent(), kAll);
    EXPECT_EQ(answer().finish, Finish::kExhausted);
  }
  const Status back = residency().take_back(kAll);
  ASSERT_TRUE(back) << back.error().what;
  EXPECT_EQ(answers().tokens, before.tokens);
}

// Servers that have had these weights alone choose algorithms of their own, so that results must
// not depend on them.
TEST_P(ResidencyDeviceTest, UpdatedWeightsAnswerAsInAServerOfTheirOwn) {
  if (!fs::exists(from_ + "/model.safetensors")) GTEST_SKIP() << from_ << " has no weights";
  config_.model = from_;
  config_.load_format = model::LoadFormat::kAuto;
  config_.batch_invariant = true;
  check_updates();
}

INSTANTIATE_TEST_SUITE_P(
    Forms, ResidencyDeviceTest,
    testing::Values(Form{.name = "OneDevice", .ranks = 1, .replicas = 1},
                    Form{.name = "TwoRanks", .ranks = 2, .replicas = 1},
                    Form{.name = "WholeExperts", .ranks = 2, .replicas = 1, .whole_experts = true},
                    Form{.name = "TwoReplicas", .ranks = 1, .replicas = 2}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace skiff::engine
