// One model over several nodes, which are engines of one process that are connected over TCP: the
// tokens are bit for bit those of as many ranks in one place, and a node that cannot go on ends
// all.
#include "engine/node_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <thread>

#include "base/load_error.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "engine/ear_testing.h"
#include "engine/llm.h"
#include "engine/model_testing.h"
#include "engine/resolved.h"
#include "nodes/rendezvous.h"

namespace skiff::engine {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kRequests = 12, kVocab = 100;
// Its sizes can be cut among four ranks.
constexpr const char* kModel = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "vocab_size": 100,
  "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 256, "torch_dtype": "float32"})";

// A module that predicts further tokens is behind its last layer.
constexpr const char* kDeepseek = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 32, "vocab_size": 100,
  "num_hidden_layers": 2, "intermediate_size": 48, "num_attention_heads": 4,
  "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 20, "qk_nope_head_dim": 12,
  "qk_rope_head_dim": 8, "v_head_dim": 10, "moe_intermediate_size": 20, "n_routed_experts": 5,
  "n_shared_experts": 2, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
  "first_k_dense_replace": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
  "num_nextn_predict_layers": 1, "max_position_embeddings": 256, "torch_dtype": "float32"})";

NewSequence request(SeqId id, const std::shared_ptr<const TokenConstraint>& constraint = nullptr) {
  NewSequence s{.id = id, .prompt = {}, .params = {}, .stop = {}, .cache = {}};
  for (int i = 0; i < 5 + static_cast<int>(id); ++i)
    s.prompt.push_back((i * 7 + static_cast<int>(id) * 3) % kVocab);
  s.params.temperature = id % 3 == 0 ? 0 : 1;
  s.params.seed = id;
  s.params.logprobs = 3;
  s.params.constraint = constraint;
  s.stop.max_tokens = 20;
  return s;
}

// A port that nobody uses now.
int free_port() { return peer::port_of(*peer::listen_on({"127.0.0.1", 0})); }

// Allows tokens that are multiples of a number, which its source is.
class Multiples final : public TokenConstraint {
 public:
  explicit Multiples(int of) : of_(of) {}
  std::unique_ptr<TokenFollower> follow() const override;
  size_t mask_words() const override { return (kVocab + 31) / 32; }
  bool failed() const override { return false; }
  std::string source() const override { return std::to_string(of_); }

 private:
  class Follower;
  const int of_;
};

class Multiples::Follower final : public TokenFollower {
 public:
  explicit Follower(int of) : of_(of) {}
  void accept(int32_t) override {}
  void fill(std::span<uint32_t> mask) override {
    std::ranges::fill(mask, 0u);
    for (uint32_t token = 0; token < kVocab; token += static_cast<uint32_t>(of_))
      mask[token / 32] |= 1u << (token % 32);
  }

 private:
  const int of_;
};

std::unique_ptr<TokenFollower> Multiples::follow() const { return std::make_unique<Follower>(of_); }

Result<std::shared_ptr<const TokenConstraint>> multiples_of(const std::string& source) {
  if (source == "0") return Error{Code::kInvalid, "nothing is a multiple of 0"};
  return std::shared_ptr<const TokenConstraint>(std::make_shared<Multiples>(std::stoi(source)));
}

class NodeWorkerTest : public testing::Test {
 protected:
  NodeWorkerTest()
      : folder_(testing::UnitTest::GetInstance()->current_test_info()->name(), kModel) {
    spdlog::default_logger();  // is made before there are threads, which ThreadSanitizer wants to
                               // see
    config_.model = folder_.path();
    config_.device = "cpu";
    config_.load_format = model::LoadFormat::kDummy;
    config_.threads = 1;
    config_.block_size = 8;
    config_.quiet = true;
    config_.version = "test";
    config_.policy.step_seconds = std::numeric_limits<double>::infinity();  // nothing is measured
  }
  EngineConfig of_node(int node, int nodes, int ranks) {
    EngineConfig config = config_;
    config.tensor_parallel = ranks;
    if (nodes > 1)
      config.nodes = {.node = node,
                      .nodes = nodes,
                      .first = {"127.0.0.1", port_},
                      .key = "secret",
                      .join_seconds = 60,
                      .silence_seconds = 60,
                      .facts = {{"a fact of the caller", "the same"}}};
    return config;
  }
  // What a worker's run() comes to.
  static std::string run(const EngineConfig& config) {
    try {
      NodeWorker::start(config, multiples_of)->run();
      return "dismissed";
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  std::vector<std::future<std::string>> start_workers(int nodes, int ranks) {
    std::vector<std::future<std::string>> workers;
    for (int node = 1; node < nodes; ++node)
      workers.push_back(std::async(std::launch::async, run, of_node(node, nodes, ranks)));
    return workers;
  }
  // What each request heard, in company.
  std::map<SeqId, Heard> heard(int nodes, int ranks) {
    auto workers = start_workers(nodes, ranks);
    Ear ear;
    std::map<SeqId, Heard> all;
    {
      const auto llm = Llm::start(of_node(0, nodes, ranks), ear.sink());
      for (SeqId id = 1; id <= kRequests; ++id) {
        const bool constrained = id % 4 == 0 && !plain_;
        NewSequence sequence = request(id, constrained ? std::make_shared<Multiples>(3) : nullptr);
        if (plain_) sequence.params.logprobs = kNoLogprobs;
        llm->submit(std::move(sequence));
      }
      EXPECT_TRUE(ear.wait_for_ends(kRequests));
      llm->stop(/*drain=*/true);
      for (SeqId id = 1; id <= kRequests; ++id) all[id] = ear.of(id);
    }
    for (auto& worker : workers) EXPECT_EQ(worker.get(), "dismissed");
    return all;
  }

  DummyFolder folder_;
  EngineConfig config_;
  bool plain_ = false;  // requests ask for tokens alone, so that steps may be chained
  const int port_ = free_port();
};

TEST_F(NodeWorkerTest, TokensAreThoseOfOneProcess) {
  for (const auto& [nodes, ranks] : {std::pair(2, 2), std::pair(2, 4), std::pair(4, 4)}) {
    const auto alone = heard(1, ranks), spread = heard(nodes, ranks);
    for (SeqId id = 1; id <= kRequests; ++id) {
      EXPECT_EQ(spread.at(id).tokens, alone.at(id).tokens) << nodes << " nodes, request " << id;
      EXPECT_TRUE(spread.at(id).logprobs == alone.at(id).logprobs) << "request " << id;
    }
  }
}

// Blocks go to host memory and back on every node: there is room for few sequences on the device.
TEST_F(NodeWorkerTest, EachNodeKeepsItsPartOfSwappedBlocks) {
  config_.num_blocks_override = 10;
  config_.max_model_len = 80;
  const auto alone = heard(1, 2);
  config_.swap_space_gb = 0.001;
  const auto spread = heard(2, 2);
  for (SeqId id = 1; id <= kRequests; ++id)
    EXPECT_EQ(spread.at(id).tokens, alone.at(id).tokens) << "request " << id;
}

// What drafts runs on every node: a model that is cut among them, one that each rank has whole, and
// a module.
TEST_F(NodeWorkerTest, DraftsChangeNoText) {
  const DummyFolder deep("node_worker_mtp", kDeepseek);
  const auto check = [&](const draft::Settings& settings) {
    config_.speculation.reset();
    const auto alone = heard(1, 2);
    config_.speculation = settings;
    const auto spread = heard(2, 2);
    for (SeqId id = 1; id <= kRequests; ++id) {
      EXPECT_EQ(spread.at(id).tokens, alone.at(id).tokens) << settings.method << ", " << id;
      EXPECT_TRUE(spread.at(id).logprobs == alone.at(id).logprobs) << settings.method << ", " << id;
    }
  };
  check({.method = "draft_model", .tokens = 2, .model = config_.model});
  check({.method = "draft_model", .tokens = 3, .model = config_.model, .ranks = 1});
  config_.model = deep.path();
  check({.method = "mtp", .tokens = 2});
  plain_ = true;
  check({.method = "mtp", .tokens = 2});
}

TEST_F(NodeWorkerTest, WhatDiffersIsRefusedBeforeWeightsAreRead) {
  auto host = std::async(std::launch::async, [&] {
    auto llm = Llm::start(of_node(0, 2, 2), [](const std::vector<Event>&) {});
    llm->stop(/*drain=*/true);
  });
  const auto refusal = [&](const std::function<void(EngineConfig&)>& change, int ranks = 2) {
    EngineConfig config = of_node(1, 2, ranks);
    change(config);
    return run(config);
  };
  EXPECT_THAT(refusal([](auto&) {}, 4),
              HasSubstr("--tensor-parallel-size is 2 at node 0 and 4 at node 1"));
  EXPECT_THAT(refusal([](auto& c) { c.block_size = 16; }),
              HasSubstr("--block-size is 8 at node 0 and 16 at node 1"));
  EXPECT_THAT(refusal([](auto& c) { c.max_num_seqs = 3; }),
              HasSubstr("--max-num-seqs is 8 at node 0 and 3 at node 1"));
  EXPECT_THAT(refusal([](auto& c) { c.version = "other"; }),
              HasSubstr("the version is test at node 0 and other at node 1"));
  EXPECT_THAT(refusal([](auto& c) { c.kv_dtype = DType::kI8; }), HasSubstr("--kv-cache-dtype is"));
  EXPECT_THAT(refusal([](auto& c) { c.dtype = DType::kBF16; }),
              HasSubstr("--dtype is float32 at node 0 and bfloat16 at node 1"));
  EXPECT_THAT(refusal([](auto& c) { c.quantization = "wint8"; }),
              HasSubstr("the quantization while loading is none at node 0"));
  EXPECT_THAT(refusal([](auto& c) { c.seed = 9; }),
              HasSubstr("--seed of dummy weights is 0 at node 0 and 9 at node 1"));
  EXPECT_THAT(refusal([](auto& c) { c.nodes.facts[0].second = "another"; }),
              HasSubstr("a fact of the caller is the same at node 0 and another at node 1"));
  EXPECT_THAT(refusal([](auto& c) { c.nodes.key = "other"; }), HasSubstr("the key"));
  EXPECT_THAT(refusal([&](auto& c) {
                c.speculation = {.method = "draft_model", .tokens = 2, .model = c.model};
              }),
              HasSubstr("the method of what drafts is none at node 0 and draft_model at node 1"));
  const DummyFolder other("node_worker_other", R"({
    "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "vocab_size": 100, "rope_theta": 5e5,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "torch_dtype": "float32"})");
  EXPECT_THAT(refusal([&](auto& c) { c.model = other.path(); }),
              HasSubstr("the digest of the model is"));
  EXPECT_EQ(refusal([](auto&) {}), "dismissed");
  host.get();
}

std::string refusal_to_start(const EngineConfig& config) {
  try {
    Llm::start(config, [](const std::vector<Event>&) {});
  } catch (const LoadError& error) {
    return error.what();
  }
  return "";
}

TEST_F(NodeWorkerTest, WhatIsNotThereIsRefused) {
  EXPECT_THAT(refusal_to_start(of_node(0, 3, 2)),
              AllOf(HasSubstr("--tensor-parallel-size is 2"), HasSubstr("3 nodes")));
  EngineConfig config = of_node(0, 2, 2);
  config.replicas = 2;
  EXPECT_THAT(refusal_to_start(config), HasSubstr("--data-parallel-size 2"));
  config = of_node(0, 2, 2);
  config.storage_path = "/tmp";
  EXPECT_THAT(refusal_to_start(config), HasSubstr("--kvcache-storage-backend"));
  config = of_node(0, 2, 2);
  config.peers.role = peer::Role::kDecode;
  EXPECT_THAT(refusal_to_start(config), HasSubstr("--splitwise-role"));
}

// Node 1 cannot make a constraint, so node 0 learns why it cannot go on.
TEST_F(NodeWorkerTest, ANodeThatCannotGoOnEndsAll) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail = [this] {
    auto workers = start_workers(2, 2);
    EngineConfig config = of_node(0, 2, 2);
    config.failed = [](const std::string& why) {
      std::_Exit(why == "node 1: a constraint: nothing is a multiple of 0" ? 7 : 8);
    };
    const auto llm = Llm::start(config, [](const std::vector<Event>&) {});
    llm->submit(request(1, std::make_shared<Multiples>(0)));
    workers[0].get();
    std::this_thread::sleep_for(std::chrono::minutes(1));
  };
  EXPECT_EXIT(fail(), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace skiff::engine
