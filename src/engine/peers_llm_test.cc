#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <thread>

#include "base/load_error.h"
#include "base/random.h"
#include "engine/peers_testing.h"
#include "peer/cutting_proxy_testing.h"

namespace skiff::engine {
namespace {

using namespace std::chrono_literals;

using PeersLlmTest = PeersTest;

TEST_F(PeersLlmTest, TokensAreThoseOfAMixedInstance) {
  Instance whole(mixed_), p(prefill());
  const auto prompt_of = [](SeqId id) { return 1 + static_cast<int>(id * 19); };
  std::map<SeqId, Heard> right;
  for (SeqId id = 1; id <= 12; ++id) right[id] = whole.result(request(id, prompt_of(id)));
  for (const bool shares : {true, false}) {
    mixed_.peers.shares_memory = shares;
    Instance d(decode({p.port()}));
    for (SeqId id = 1; id <= 12; ++id) {
      const int prompt = prompt_of(id);
      const Heard heard = d.result(request(id, prompt));
      expect_equal(heard, right[id]);
      EXPECT_EQ(heard.cached, prompt > 8 ? prompt - 1 : 0) << "all but one row came from the other";
    }
    EXPECT_EQ(d->stats().peers.prompts, 12u);
    EXPECT_EQ(d->stats().tiers.failures, 0u);
    EXPECT_EQ(d->stats().peers.shared_blocks > 0, shares);
    EXPECT_TRUE(p.comes_to([](const EngineStats& s) { return s.peers.leases == 0; }));
    EXPECT_TRUE(
        d.comes_to([](const EngineStats& s) { return s.peers.blocks > 0 && s.peers.leases == 0; }));
  }
}

// The other side is asked by somebody else; the decode side waits for blocks as they are computed.
TEST_F(PeersLlmTest, AnOriginNamesWhoHasTheBlocks) {
  Instance whole(mixed_), p(prefill()), d(decode({}));
  for (SeqId id = 1; id <= 6; ++id) {
    NewSequence wanted = request(id), first = request(id);
    wanted.origin = KvOrigin{.host = "127.0.0.1", .port = p.port()};
    first.stop.max_tokens = 1;
    if (id % 2 == 0) p.result(first);
    d->submit(wanted);
    if (id % 2 == 1) {
      ASSERT_TRUE(p.comes_to([](const EngineStats& s) { return s.peers.leases == 1; }));
      p->submit(first);
    }
    const Heard heard = d.await(id);
    expect_equal(heard, whole.result(request(id)));
    EXPECT_EQ(heard.cached, 149);
    ASSERT_TRUE(p.comes_to([](const EngineStats& s) { return s.peers.leases == 0; }));
  }
  EXPECT_EQ(p->stats().peers.prompts, 0u);
}

// Sequences with one prompt share its computation, and what is here already is not asked for.
TEST_F(PeersLlmTest, AsksOnceForWhatSeveralWant) {
  Instance p(prefill());
  Instance d(decode({p.port()}));
  for (SeqId id = 1; id <= 4; ++id) {
    NewSequence s = request(1);
    s.id = id;
    s.params.seed = id;
    d->submit(std::move(s));
  }
  for (SeqId id = 1; id <= 4; ++id) EXPECT_EQ(d.await(id).cached, 149);
  EXPECT_EQ(d->stats().peers.prompts, 1u);
  EXPECT_EQ(d->stats().peers.blocks, 19u);
}

// A block that left the shelf but not the pool comes back to the shelf with the next request.
TEST_F(PeersLlmTest, TheShelfMayBeSmallerThanThePool) {
  Instance whole(mixed_);
  std::vector<Heard> right;
  for (SeqId id = 1; id <= 6; ++id) right.push_back(whole.result(request(id)));
  EngineConfig small = prefill();
  {
    Instance p(prefill());
    Instance d(decode({p.port()}));
    d.result(request(1));
    const peer::Stats stats = d->stats().peers;
    const uint64_t block_bytes = stats.bytes / stats.blocks;
    small.peers.buffer_gb = 40.5 * static_cast<double>(block_bytes) / (1 << 30);
  }
  Instance p(small);
  for (int round = 0; round < 2; ++round) {
    Instance d(decode({p.port()}));  // with nothing cached
    for (SeqId id = 1; id <= 6; ++id) {
      const Heard heard = d.result(request(id));
      expect_equal(heard, right[id - 1]);
      EXPECT_EQ(heard.cached, 149) << "round " << round << " sequence " << id;
    }
  }
}

TEST_F(PeersLlmTest, ADeadPrefillServerCostsComputingOnly) {
  Instance whole(mixed_);
  auto p = std::make_unique<Instance>(prefill());
  Instance d(decode({p->port()}));
  expect_equal(d.result(request(1)), whole.result(request(1)));
  p.reset();
  for (SeqId id = 2; id <= 4; ++id) expect_equal(d.result(request(id)), whole.result(request(id)));
  const auto gone = static_cast<int>(peer::Loss::kGone);
  EXPECT_TRUE(d.comes_to(
      [=](const EngineStats& s) { return s.peers.recomputed[gone] == uint64_t{3} * 149; }));
  NewSequence elsewhere = request(5);
  elsewhere.origin = KvOrigin{.host = "192.0.2.1", .port = 9};
  expect_equal(d.result(elsewhere), whole.result(request(5)));
}

// Groups of other sizes add in another order: in float32, sums of 48 products over two layers
// differ by some 1e-6, and keys and values of a wrong head by far more than kClose. Every block
// comes and is used.
TEST_F(PeersLlmTest, GroupsOfOtherSizesExchangeBlocks) {
  constexpr float kClose = 1e-4f;
  std::string config = kSmallLlama;
  config.replace(config.find("97"), 2, "96");  // a vocabulary that four ranks can share out
  const DummyFolder even("GroupsOfOtherSizes", config);
  mixed_.model = even.path();
  mixed_.device = "cpu";  // has room for any number of ranks
  const auto wanted = [](SeqId id) {
    NewSequence s = request(id);
    for (Token& token : s.prompt) token %= 96;
    return s;
  };
  Instance whole(mixed_);
  for (const auto& [from, to] : {std::pair{1, 2}, {2, 1}, {4, 2}, {2, 4}}) {
    EngineConfig first = prefill();
    first.tensor_parallel = from;
    Instance p(first);
    EngineConfig second = decode({p.port()});
    second.tensor_parallel = to;
    Instance d(second);
    for (SeqId id = 3; id <= 18; id += 3) {  // those with log-probabilities
      const Heard right = whole.result(wanted(id)), heard = d.result(wanted(id));
      EXPECT_EQ(heard.cached, 149) << from << " ranks to " << to;
      ASSERT_FALSE(heard.logprobs.empty() || right.logprobs.empty());
      const auto &mine = heard.logprobs.front().top, &theirs = right.logprobs.front().top;
      ASSERT_EQ(mine.size(), theirs.size());
      for (size_t i = 0; i < mine.size(); ++i)
        EXPECT_NEAR(mine[i].logprob, theirs[i].logprob, kClose)
            << from << " ranks to " << to << ", sequence " << id;
    }
    EXPECT_EQ(d->stats().peers.blocks, 6u * 19);
    EXPECT_EQ(d->stats().tiers.failures, 0u);
  }
}

// What is cut, changed or held up on its way is computed here, and the tokens are the same. The
// bytes are those from the prefill side: the greeting, the welcome and blocks, or what says where
// they lie.
TEST_F(PeersLlmTest, HarmOnTheWayChangesNoToken) {
  using peer::CuttingProxy;
  Instance whole(mixed_), p(prefill());
  const Heard right = whole.result(request(1));
  for (const bool shares : {false, true}) {
    mixed_.peers.shares_memory = shares;
    size_t harmed = 0, all = 0;
    for (const auto harm : {CuttingProxy::Harm::kCut, CuttingProxy::Harm::kFlip}) {
      for (size_t after = 0; after < (shares ? 1500 : 60000); after = after * 5 / 4 + 7) {
        CuttingProxy proxy(p.port(), harm, after);
        EngineConfig config = decode({proxy.port()});
        if (harm == CuttingProxy::Harm::kFlip) config.peers.wait_seconds = 0.3;
        Instance d(config);
        expect_equal(d.result(request(1)), right);
        harmed += proxy.harmed();
        ++all;
      }
      ASSERT_TRUE(p.comes_to([](const EngineStats& s) { return s.peers.leases == 0; }));
    }
    EXPECT_GT(harmed, all / 2) << shares;
  }
}

TEST_F(PeersLlmTest, ASilentServerIsWaitedForOnlySoLong) {
  using peer::CuttingProxy;
  Instance whole(mixed_), p(prefill());
  const Heard right = whole.result(request(1)), right_again = whole.result(request(2));
  for (const auto& [after, shares] :
       {std::pair<size_t, bool>{0, false}, {50, true}, {150, false}, {5000, false}, {700, true}}) {
    mixed_.peers.shares_memory = shares;
    CuttingProxy proxy(p.port(), CuttingProxy::Harm::kStall, after);
    EngineConfig config = decode({proxy.port()});
    config.peers.wait_seconds = 0.2;
    Instance d(config);
    expect_equal(d.result(request(1)), right);
    EXPECT_TRUE(proxy.harmed());
    uint64_t late = 0;
    for (const auto loss : {peer::Loss::kLate, peer::Loss::kGone})
      late += d->stats().peers.recomputed[static_cast<int>(loss)];
    EXPECT_GT(late, 0u) << after;
    // Who did not answer in time is in doubt, and the next prompt does not wait.
    const auto waits = static_cast<int>(peer::Loss::kLate);
    const uint64_t before = d->stats().peers.recomputed[waits];
    expect_equal(d.result(request(2)), right_again);
    EXPECT_EQ(d->stats().peers.recomputed[waits], before) << after;
  }
}

// Nobody computes the prompt, so the sequence waits until its client leaves; the lease ends then.
TEST_F(PeersLlmTest, ACancelEndsTheLease) {
  Instance p(prefill()), d(decode({}));
  NewSequence wanted = request(1);
  wanted.origin = KvOrigin{.host = "127.0.0.1", .port = p.port()};
  d->submit(wanted);
  ASSERT_TRUE(p.comes_to([](const EngineStats& s) { return s.peers.leases == 1; }));
  EXPECT_EQ(d->stats().running, 0);
  d->cancel(1);
  EXPECT_EQ(d.await(1).finish, Finish::kCancelled);
  EXPECT_TRUE(p.comes_to([](const EngineStats& s) { return s.peers.leases == 0; }));
}

// Two sequences expect the same first blocks, and the younger one is cancelled before the elder has
// fetched any.
TEST_F(PeersLlmTest, ACancelTakesNoBlocksFromOthers) {
  EngineConfig narrow = decode({});
  narrow.max_num_seqs = 1;
  Instance p(prefill()), d(narrow);
  p.result(request(1));  // so that its blocks are there
  NewSequence busy = request(2, 5), next = request(3, 5), elder = request(1), younger = request(4);
  busy.stop.max_tokens = 1000;  // the context, and meanwhile nothing else starts
  for (size_t i = 0; i < 80; ++i) younger.prompt[i] = elder.prompt[i];
  elder.origin = younger.origin = KvOrigin{.host = "127.0.0.1", .port = p.port()};
  for (const NewSequence& each : {busy, next, elder, younger}) d->submit(each);
  d->cancel(4);
  EXPECT_EQ(d.await(1).cached, 149);
  EXPECT_TRUE(p.comes_to([](const EngineStats& s) { return s.peers.leases == 0; }));
}

// The other side goes away while it is asked for blocks that it has not.
TEST_F(PeersLlmTest, APrefillServerMayGoWhileBlocksAreAwaited) {
  Instance whole(mixed_), d(decode({}));
  auto p = std::make_unique<Instance>(prefill());
  NewSequence wanted = request(1);
  wanted.origin = KvOrigin{.host = "127.0.0.1", .port = p->port()};
  d->submit(wanted);
  ASSERT_TRUE(p->comes_to([](const EngineStats& s) { return s.peers.leases == 1; }));
  p.reset();
  expect_equal(d.await(1), whole.result(request(1)));
}

// The prompts of the other side are more than this one computes, and do not end.
TEST_F(PeersLlmTest, APrefillServerStopsWhileItIsAsked) {
  Instance p(prefill()), d(decode({p.port()}));
  std::atomic<bool> over = false;
  const std::jthread asks([&] {
    for (SeqId id = 1; !over; std::this_thread::sleep_for(200us)) {
      if (d->stats().waiting > 60) continue;
      NewSequence wanted = request(id, 217);
      wanted.prompt[1] = static_cast<Token>(id++ / 97 % 97);
      wanted.stop.max_tokens = 1;
      d->submit(std::move(wanted));
    }
  });
  EXPECT_TRUE(p.comes_to([](const EngineStats& s) { return s.waiting > 20; }));
  const auto stopped = std::async(std::launch::async, [&] { p->stop(/*drain=*/true); });
  EXPECT_EQ(stopped.wait_for(20s), std::future_status::ready);
  over = true;
}

TEST_F(PeersLlmTest, InstancesThatDifferRefuseEachOther) {
  Instance whole(mixed_), p(prefill());
  const auto refused = static_cast<int>(peer::Loss::kRefused);
  const auto meets = [&](const char* what, const std::function<void(EngineConfig&)>& change) {
    EngineConfig config = decode({p.port()});
    change(config);
    Instance d(config);
    d.result(request(1));
    EXPECT_TRUE(d.comes_to([&](const EngineStats& s) { return s.peers.recomputed[refused] > 0; }))
        << what;
    EXPECT_EQ(d->stats().peers.blocks, 0u) << what;
  };
  meets("other weights", [](EngineConfig& c) { c.seed = 9; });
  meets("another block size", [](EngineConfig& c) { c.block_size = 16; });
  meets("another type", [](EngineConfig& c) { c.dtype = DType::kBF16; });
  meets("another version", [](EngineConfig& c) { c.version = "x"; });
  meets("a key", [](EngineConfig& c) { c.peers.key = "k"; });
}

TEST_F(PeersLlmTest, StrangersAreKeptOut) {
  EngineConfig open = prefill();
  open.peers.listen.host = "0.0.0.0";
  const auto refusal = [](const EngineConfig& config) -> std::string {
    try {
      Llm::start(config, [](const std::vector<Event>&) {});
    } catch (const LoadError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal(open).find("--pd-comm-key-file"), std::string::npos);
  open.peers.key = "k";
  EXPECT_EQ(refusal(open), "");
  EngineConfig far = decode({});
  far.peers.prefills.push_back({"192.0.2.1", 9});
  EXPECT_NE(refusal(far).find("--pd-comm-key-file"), std::string::npos);
  far.prefix_caching = false;
  EXPECT_NE(refusal(far).find("--enable-prefix-caching"), std::string::npos);
}

// Many requests at a time through two prefill servers with little room, some of which are left.
TEST_F(PeersLlmTest, RandomScheduleKeepsTokens) {
  EngineConfig tight = mixed_;
  tight.num_blocks_override = 70;
  Instance whole(tight);
  mixed_.num_blocks_override = 70;
  Instance p(prefill()), q(prefill());
  Instance d(decode({p.port(), q.port()}));
  uint64_t state = 5;
  std::vector<std::pair<SeqId, int>> kept;
  for (SeqId id = 1; id <= 40; ++id) {
    const int prompt = 1 + static_cast<int>(splitmix64(state) % 220);
    d->submit(request(id, prompt));
    if (splitmix64(state) % 5 == 0)
      d->cancel(id);
    else
      kept.emplace_back(id, prompt);
  }
  for (const auto& [id, prompt] : kept)
    expect_equal(d.await(id), whole.result(request(id, prompt)));
  for (Instance* one : {&p, &q})
    EXPECT_TRUE(one->comes_to([](const EngineStats& s) {
      return s.peers.leases == 0 && s.running == 0 && s.waiting == 0;
    }));
  EXPECT_GT(p->stats().peers.blocks, 0u);
  EXPECT_GT(q->stats().peers.blocks, 0u);
}

}  // namespace
}  // namespace skiff::engine
