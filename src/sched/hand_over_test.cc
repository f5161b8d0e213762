// What a scheduler plans so that others go on from its prompts, and how it goes on from theirs.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "sched/scheduler_testing.h"

namespace skiff::sched {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Bytes = std::vector<Token>;  // what a block holds: a token for each row that was computed

// The other side's blocks, on both sides of the way.
class Way : public kv::BlockSource {
 public:
  Way(std::map<kv::BlockKey, Bytes>& blocks, bool fetches) : blocks_(blocks), fetches_(fetches) {}
  bool expects() const override { return fetches_; }
  bool takes_partial() const override { return true; }
  bool has(const kv::BlockKey& key) const override { return fetches_ && blocks_.contains(key); }
  int begin_fetch(const kv::BlockKey&) override { return 0; }
  void end_fetch(int, const TierDone&) override {}
  bool wants(const kv::BlockKey& key) const override {
    return !fetches_ && !blocks_.contains(key) && !storing_.contains(key);
  }
  int begin_store(const kv::BlockKey& key) override {
    storing_.insert(key);
    return 0;
  }
  void end_store(int, bool) override {}

 private:
  std::map<kv::BlockKey, Bytes>& blocks_;
  const bool fetches_;
  std::set<kv::BlockKey> storing_;
};

// A scheduler with the bytes of its blocks: a row writes its token where it belongs, and one that
// draws first reads all before it.
class Side {
 public:
  Side(const Limits& limits, int blocks, int host_blocks, std::map<kv::BlockKey, Bytes>& way,
       bool fetches)
      : way_(way),
        device_(static_cast<size_t>(blocks), Bytes(kBlock, kStale)),
        host_(static_cast<size_t>(host_blocks), Bytes(kBlock, kStale)),
        cache_(blocks, kBlock, true, 0,
               {.host_blocks = host_blocks,
                .spill = false,
                .always_pays = fetches,
                .stores_found = !fetches,
                .hands_over = !fetches},
               sources(way, fetches)),
        scheduler_(limits, cache_) {}

  Scheduler* operator->() { return &scheduler_; }
  void add(NewSequence s) {
    texts_[s.id] = s.prompt;
    ASSERT_TRUE(scheduler_.add(std::move(s)));
  }
  // Plans a step and carries it out, and all jobs with it. Returns the plan.
  StepPlan step() {
    const StepPlan plan = scheduler_.plan();
    do_jobs();
    for (const BlockCopy& copy : plan.saves) host(copy.host) = device(copy.block);
    for (const BlockCopy& copy : plan.loads) device(copy.block) = host(copy.host);
    StepResult result{.step = plan.step};
    size_t row = 0;
    for (size_t i = 0; i < plan.spans.size(); ++i) {
      const Span& s = plan.spans[i];
      const auto pages = std::span(plan.pages).subspan(static_cast<size_t>(plan.page_start[i]));
      for (int at = s.begin; at < s.begin + s.count; ++at)
        device(pages[static_cast<size_t>(at / kBlock)])[static_cast<size_t>(at % kBlock)] =
            plan.tokens[row++];
      check(s, pages);
      result.tokens.push_back(s.sample ? std::vector<Token>{7} : std::vector<Token>{});
      result.logprobs.emplace_back(result.tokens.back().size());
      result.prompt_logprobs.emplace_back();
    }
    if (!plan.empty()) scheduler_.commit(plan, result);
    do_jobs();
    for (const Event& e : scheduler_.take_events()) {
      for (const Token token : e.tokens) texts_[e.seq].push_back(token);
      if (e.admitted) cached[e.seq] = e.cached;
    }
    return plan;
  }
  void run() {
    for (int i = 0; i < 1000 && !scheduler_.idle(); ++i) step();
    EXPECT_TRUE(scheduler_.idle());
  }
  std::map<SeqId, int> cached;

 private:
  static constexpr Token kStale = -9;
  static kv::BlockSources sources(std::map<kv::BlockKey, Bytes>& way, bool fetches) {
    kv::BlockSources sources;
    sources.push_back(std::make_unique<Way>(way, fetches));
    return sources;
  }
  Bytes& device(int block) { return device_[static_cast<size_t>(block)]; }
  Bytes& host(int block) { return host_[static_cast<size_t>(block)]; }
  // A row reads the rows of all tokens before it.
  void check(const Span& s, std::span<const BlockId> pages) {
    const std::vector<Token>& text = texts_[s.seq];
    for (int at = 0; at < s.begin + s.count; ++at)
      ASSERT_EQ(device(pages[static_cast<size_t>(at / kBlock)])[static_cast<size_t>(at % kBlock)],
                text[static_cast<size_t>(at)])
          << "sequence " << s.seq << ", position " << at;
  }
  void do_jobs() {
    for (const kv::TierJob& job : scheduler_.tiers().take_jobs()) {
      if (job.kind == kv::TierJob::Kind::kWrite) {
        // Rows behind the tokens that a block is named by mean nothing.
        Bytes bytes = host(job.host_block);
        std::fill(bytes.begin() + std::ssize(job.tokens), bytes.end(), kStale);
        EXPECT_TRUE(std::ranges::equal(job.tokens, std::span(bytes).first(job.tokens.size())));
        way_[job.key] = bytes;
      } else {
        host(job.host_block) = way_.at(job.key);
      }
      scheduler_.tiers().done({job.id, /*ok=*/true});
    }
  }

  std::map<kv::BlockKey, Bytes>& way_;
  std::vector<Bytes> device_, host_;
  kv::CacheIndex cache_;
  Scheduler scheduler_;
  std::map<SeqId, std::vector<Token>> texts_;
};

TEST(HandOver, ThePromptsRestGoesWithItsBlocksBeforeFurtherRows) {
  std::map<kv::BlockKey, Bytes> way;
  Side side(limits(4, 64), 40, 16, way, /*fetches=*/false);
  side.add(request(1, 12, 1));
  side.add(request(2, 3, 1));
  EXPECT_EQ(side.step().spans.size(), 2u);
  side.add(request(3, 9, 1));
  const StepPlan saves = side.step();
  EXPECT_THAT(saves.spans, IsEmpty());
  EXPECT_EQ(saves.saves.size(), 4u) << "three full blocks, and the rest of eleven tokens";
  side.run();
  std::vector<size_t> sizes;
  for (const auto& [key, bytes] : way)
    sizes.push_back(
        static_cast<size_t>(std::ranges::count_if(bytes, [](Token t) { return t > 0; })));
  EXPECT_THAT(sizes, testing::UnorderedElementsAre(4, 4, 4, 3, 4, 4))
      << "nothing of a prompt of less than a block, nor of one that ends with it";
}

TEST(HandOver, TheOtherSideBeginsWithOneRow) {
  std::map<kv::BlockKey, Bytes> way;
  Side first(limits(4, 64), 40, 16, way, false), second(limits(4, 64), 40, 16, way, true);
  for (const int tokens : {11, 12, 13, 5}) {
    const auto id = static_cast<SeqId>(tokens);
    first.add(request(id, tokens, 1));
    first.run();
    second.add(request(id, tokens, 3));
    second.step();
    const StepPlan plan = second.step();
    ASSERT_EQ(plan.spans.size(), 1u) << tokens;
    EXPECT_EQ(plan.spans[0].begin, tokens - 1);
    EXPECT_TRUE(plan.only_decodes());
    EXPECT_EQ(second.cached[id], tokens - 1);
    second.run();
  }
}

// Prompts that begin alike or are the same, with little memory on either side. All rows are read
// where they were written.
TEST(HandOver, RandomSchedulesReadWhatWasComputed) {
  int one_row = 0, all = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<uint64_t>(n)); };
    std::map<kv::BlockKey, Bytes> way;
    Side first(limits(2 + below(5), 16 + below(40)), 14 + below(20), 5 + below(12), way, false);
    Side second(limits(2 + below(5), 16 + below(40)), 14 + below(20), 14 + below(12), way, true);
    for (SeqId id = 1; id <= 30; ++id) {
      NewSequence s = request(id, 1 + below(45), 1);
      if (below(2) == 0)
        for (size_t i = 0; i < s.prompt.size(); ++i) s.prompt[i] = static_cast<Token>(i + 1);
      // Another token, often behind the last full block.
      const auto from_end = static_cast<size_t>(1 + below(kBlock));
      if (below(2) == 0 && from_end <= s.prompt.size())
        s.prompt[s.prompt.size() - from_end] = 500 + below(3);
      NewSequence wanted = s;
      wanted.stop.max_tokens = 1 + below(6);
      first.add(std::move(s));
      for (int i = below(6); i > 0; --i) first.step();
      if (below(8) == 0) first->cancel(id);
      second.add(std::move(wanted));
      for (int i = below(4); i > 0; --i) second.step();
      if (below(9) == 0) second->cancel(id);
    }
    first.run();
    second.run();
    for (const auto& [id, cached] : second.cached) one_row += cached % kBlock != 0;
    all += static_cast<int>(second.cached.size());
  }
  EXPECT_GT(one_row, all / 5) << "the case is no test otherwise";
}

}  // namespace
}  // namespace skiff::sched
