// What each policy promises, and how loads and health behave under it.
#include "route/policy.h"

#include <gtest/gtest.h>

#include <tuple>

#include "route/registry.h"

namespace skiff::route {
namespace {

std::unique_ptr<Policy> policy(std::string_view name, uint64_t seed = 1) {
  return std::move(*make_policy(name, {}, seed));
}

Candidate busy(int running, int64_t tokens = 0, int64_t cached = 0) {
  return {.load = {.running = running, .tokens = tokens, .waiting = tokens}, .cached = cached};
}

// How often each of the candidates is chosen, which do not change by it.
std::vector<int> shares(Policy& policy, const std::vector<Candidate>& candidates, int64_t tokens,
                        int draws = 1000) {
  std::vector<int> counts(candidates.size());
  for (int i = 0; i < draws; ++i) ++counts[policy.choose(candidates, tokens)];
  return counts;
}

TEST(Policy, UnknownNamesAreRefusedWithTheList) {
  const auto made = make_policy("fastest", {}, 0);
  ASSERT_FALSE(made);
  for (const std::string_view name : policy_names()) {
    EXPECT_NE(made.error().what.find(name), std::string::npos);
    EXPECT_TRUE(make_policy(name, {}, 0));
  }
}

TEST(Policy, EveryPolicyChoosesAmongAll) {
  for (const std::string_view name : policy_names()) {
    const auto one = policy(name);
    for (const int count : shares(*one, {busy(1), busy(1), busy(1)}, 100))
      EXPECT_GT(count, 200) << name;
    EXPECT_EQ(one->choose(std::vector{busy(9)}, 1), 0u) << name;
  }
}

TEST(Policy, LeastOfItsNumber) {
  EXPECT_EQ(policy("process_tokens")->choose(std::vector{busy(1, 900), busy(5, 800)}, 10), 1u);
  EXPECT_EQ(policy("request_num")->choose(std::vector{busy(1, 900), busy(5, 800)}, 10), 0u);
  std::vector<Candidate> reported{busy(0), busy(9)};
  reported[0].load.reported = 21;
  reported[1].load.reported = 12;
  EXPECT_EQ(policy("fd_metrics_score")->choose(reported, 10), 1u);
  reported[1].load.sent = 30;  // since the report
  reported[1].load.sent_before = 20;
  EXPECT_EQ(policy("fd_metrics_score")->choose(reported, 10), 0u);
  reported[1].load.sent_before = 29;
  EXPECT_EQ(policy("fd_metrics_score")->choose(reported, 10), 1u);
}

// A report counts what waits ten times, and requests of other routers: beside it, the router's own
// count makes the backend that tells nothing seem idle.
TEST(Policy, MetricsScoresAreComparedWithTheirLikes) {
  std::vector<Candidate> mixed{busy(1), busy(4)};
  mixed[0].load.reported = 40;
  EXPECT_EQ(policy("fd_metrics_score")->choose(mixed, 10), 0u);
  mixed[1].load.reported = 30;
  EXPECT_EQ(policy("fd_metrics_score")->choose(mixed, 10), 1u);
  mixed[0].load.reported = -1;
  EXPECT_EQ(policy("fd_metrics_score")->choose(mixed, 10), 0u);
  mixed[0].load.running = 5;
  EXPECT_EQ(policy("fd_metrics_score")->choose(mixed, 10), 1u);
}

TEST(Policy, PowerOfTwoPrefersTheLessBusy) {
  const auto counts = shares(*policy("power_of_two"), {busy(9), busy(0), busy(9)}, 10);
  EXPECT_GT(counts[1], 450);  // 5 of 9 draws of a pair have it
  EXPECT_GT(counts[0], 100);
}

TEST(Policy, CacheAwareWeighsHitsUntilLoadsDiffer) {
  const auto one = policy("cache_aware");
  EXPECT_EQ(one->choose(std::vector{busy(4, 0, 0), busy(5, 0, 90)}, 100), 1u);
  EXPECT_EQ(one->choose(std::vector{busy(4, 10, 0), busy(9, 90, 90)}, 100), 0u);
}

TEST(PrefixPolicy, FollowsThePrefix) {
  const auto counts = shares(*policy("prefix"), {busy(3), busy(5, 0, 900), busy(3)}, 1000);
  EXPECT_EQ(counts, (std::vector{0, 1000, 0}));
}

TEST(PrefixPolicy, HoldersShareByLoad) {
  const auto counts = shares(*policy("prefix"), {busy(4, 0, 1000), busy(2, 0, 960), busy(0)}, 1000);
  EXPECT_GT(counts[1], 700);
  EXPECT_EQ(counts[2], 0);
}

TEST(PrefixPolicy, OfHoldersAlikeTheLongerPrefixCostsLess) {
  const auto counts = shares(*policy("prefix"), {busy(2, 0, 910), busy(2, 0, 1000)}, 1000);
  EXPECT_GT(counts[1], 700);  // 3 of 4 draws of a pair have it
}

TEST(PrefixPolicy, AnOverloadedHolderIsLeft) {
  const auto counts = shares(*policy("prefix"), {busy(40, 0, 1000), busy(2), busy(2)}, 1000);
  EXPECT_LT(counts[0], 150);  // only where both draws are the holder
}

// A new backend has no load and holds nothing: it must not get everything at once.
TEST(PrefixPolicy, AnEmptyBackendIsNotFlooded) {
  std::vector<Candidate> candidates(7, busy(6));
  candidates.push_back(busy(0));
  const auto counts = shares(*policy("prefix"), candidates, 1000);
  EXPECT_GT(counts[7], 150);
  EXPECT_LT(counts[7], 300);  // two shares of eight, less where both draws are it
}

TEST(PrefixPolicy, TheSameSeedChoosesAlike) {
  const auto one = policy("prefix", 7), other = policy("prefix", 7);
  const std::vector<Candidate> candidates{busy(1), busy(2), busy(1), busy(3)};
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(one->choose(candidates, 50), other->choose(candidates, 50));
}

TEST(Health, ThreeFailuresOutTwoSuccessesIn) {
  const HealthSettings settings;
  Health health;
  EXPECT_FALSE(health.up());
  EXPECT_TRUE(health.probed(true, settings));  // the first success counts at once
  EXPECT_FALSE(health.probed(false, settings));
  EXPECT_FALSE(health.probed(false, settings));
  EXPECT_TRUE(health.up());
  EXPECT_TRUE(health.probed(false, settings));
  EXPECT_FALSE(health.up());
  EXPECT_FALSE(health.probed(true, settings));
  EXPECT_FALSE(health.probed(false, settings));  // in a row
  EXPECT_FALSE(health.probed(true, settings));
  EXPECT_TRUE(health.probed(true, settings));
  EXPECT_TRUE(health.up());
}

Instance instance(uint16_t port, Role role = Role::kMixed) {
  Instance made;
  made.host = "10.0.0.1";
  made.port = port;
  made.role = role;
  return made;
}

TEST(Registry, TheSameUrlReplacesAndKeepsItsLoad) {
  Registry registry({});
  const auto now = Clock::now();
  const auto backend = *registry.put(instance(1), false, now);
  backend->health.probed(true, {});
  const LoadShare share(backend, 100);
  Instance again = instance(1);
  again.paused = true;
  EXPECT_EQ(*registry.put(again, false, now), backend);
  EXPECT_EQ(registry.all().size(), 1u);
  EXPECT_EQ(backend->load.running, 1);
  EXPECT_TRUE(registry.usable(Role::kMixed).empty());  // paused
  std::ignore = registry.put(instance(1), false, now);
  EXPECT_EQ(registry.usable(Role::kMixed).size(), 1u);
}

TEST(Registry, HealthFlapsKeepLoadAndPrefixes) {
  Registry registry({});
  const auto backend = *registry.put(instance(1), true, Clock::now());
  const HealthSettings settings;
  backend->health.probed(true, settings);
  const std::vector<uint64_t> blocks{1, 2, 3};
  backend->prefixes.add(blocks);
  const LoadShare share(backend, 100);
  for (int i = 0; i < 3; ++i) backend->health.probed(false, settings);
  EXPECT_TRUE(registry.usable(Role::kMixed).empty());
  for (int i = 0; i < 2; ++i) backend->health.probed(true, settings);
  ASSERT_EQ(registry.usable(Role::kMixed).size(), 1u);
  EXPECT_EQ(backend->load.running, 1);
  EXPECT_EQ(backend->load.waiting, 100);
  EXPECT_EQ(backend->prefixes.match(blocks), 3u);
}

TEST(Registry, ForgetsOnlyWhoRegisteredAndIsDown) {
  Registry registry({.forget_seconds = 60});
  const auto now = Clock::now();
  std::ignore = registry.put(instance(1), true, now);
  std::ignore = registry.put(instance(2), false, now);
  const auto up = *registry.put(instance(3), false, now);
  up->health.probed(true, {});
  registry.forget_absent(now + std::chrono::seconds(59));
  EXPECT_EQ(registry.all().size(), 3u);
  registry.forget_absent(now + std::chrono::seconds(61));
  EXPECT_EQ(registry.all().size(), 2u);
  EXPECT_EQ(registry.find("http://10.0.0.1:2"), nullptr);
}

TEST(Registry, RolesMustFitTheRouter) {
  const Registry whole({}), pairs({.splitwise = true});
  EXPECT_TRUE(whole.check(instance(1)));
  EXPECT_FALSE(whole.check(instance(1, Role::kPrefill)));
  EXPECT_FALSE(pairs.check(instance(1)));
  EXPECT_TRUE(pairs.check(instance(1, Role::kDecode)));
}

TEST(LoadShare, CountsFromTheChoiceToTheEnd) {
  const auto backend = std::make_shared<Backend>(instance(1), true, 8, Clock::now());
  {
    LoadShare share(backend, 70);
    EXPECT_EQ(backend->load.waiting, 70);
    share.answered();
    share.answered();
    EXPECT_EQ(backend->load.waiting, 0);
    EXPECT_EQ(backend->load.tokens, 70);
    EXPECT_EQ(backend->load.running, 1);
  }
  EXPECT_EQ(backend->load.tokens, 0);
  EXPECT_EQ(backend->load.running, 0);
}

}  // namespace
}  // namespace skiff::route
