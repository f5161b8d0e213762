#include "sample/edit_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "ops/ops.h"
#include "sample/rules.h"
#include "sample/slot_bans.h"

namespace skiff::sample {
namespace {

double random(uint64_t& next) { return uniform_draw(4, next++); }
int below(uint64_t& next, int n) { return static_cast<int>(random(next) * n); }

std::vector<Edit> all_tokens(int vocab, float amount) {
  std::vector<Edit> out;
  out.reserve(static_cast<size_t>(vocab));
  for (Token t = 0; t < vocab; ++t) out.push_back({t, amount + static_cast<float>(t % 7)});
  return out;
}

// Lists, rows of zeros, and the results of applying the lists to the rows.
class EditStoreTest : public testing::Test {
 protected:
  void draw(EditStore& store, const std::vector<EditList*>& lists) {
    std::vector<float> logits(lists.size() * static_cast<size_t>(vocab_), 0);
    staging_.begin();
    store.begin(host_tensor(logits.data(), DType::kF32, {std::ssize(lists), vocab_}));
    for (size_t r = 0; r < lists.size(); ++r) store.add(static_cast<int>(r), *lists[r]);
    store.apply();
    for (size_t r = 0; r < lists.size(); ++r) {
      std::vector<float> want(static_cast<size_t>(vocab_), 0);
      for (const Edit& edit : lists[r]->entries()) want[static_cast<size_t>(edit.token)] = edit.add;
      const auto row = logits.begin() + static_cast<long>(r) * vocab_;
      ASSERT_TRUE(std::equal(want.begin(), want.end(), row)) << "row " << r;
    }
  }

  std::unique_ptr<Ops> ops_ = make_reference_ops();
  Staging staging_{*ops_};
  int vocab_ = 5000;
};

TEST_F(EditStoreTest, ListsGrowChangeAndShrink) {
  EditStore store(*ops_, staging_, vocab_, 3);
  std::vector<std::unique_ptr<EditList>> lists;
  lists.reserve(3);
  for (int i = 0; i < 3; ++i) lists.push_back(std::make_unique<EditList>());
  uint64_t next = 0;
  for (int round = 0; round < 200; ++round) {
    for (const auto& list : lists) {
      for (int change = below(next, 60); change-- > 0;) {
        const auto n = static_cast<int>(list->entries().size());
        const auto add = static_cast<float>(below(next, 50)) - 20.5f;
        if (n < vocab_ && below(next, 4) > 0) {
          list->push({n, add});
        } else if (n > 0 && below(next, 3) > 0) {
          const int at = below(next, n);
          list->set(static_cast<size_t>(at), {at, add});
        } else if (n > 0) {
          list->pop();
        }
      }
    }
    // not every list takes part in every draw
    std::vector<EditList*> some;
    for (const auto& list : lists)
      if (below(next, 4) > 0) some.push_back(list.get());
    draw(store, some);
  }
  EXPECT_GT(lists[0]->entries().size(), 2u * EditStore::kPage);
  for (const auto& list : lists) store.release(*list);
}

TEST_F(EditStoreTest, ManyRowsShareAFixedList) {
  EditStore store(*ops_, staging_, vocab_, 4);
  EditList all(all_tokens(vocab_, 1)), some({{3, 1.f}, {4, -1.f}, {900, 2.f}}), none;
  for (int i = 0; i < 3; ++i) draw(store, {&all, &some, &all, &none, &some, &all});
  store.release(all);
  draw(store, {&some, &all});
  store.release(all);
  store.release(some);
}

// More lists than there is room for: those of the draw come first, and lists that do not fit even
// so are sent each time.
TEST_F(EditStoreTest, TooManyLists) {
  vocab_ = 3000;
  const int slots = 2 * EditStore::kFullLists;
  EditStore store(*ops_, staging_, vocab_, slots);
  std::vector<std::unique_ptr<EditList>> lists;
  lists.reserve(static_cast<size_t>(slots) * 2);
  // room for 64 lists of three pages and 128 times three
  for (int i = 0; i < 2 * slots; ++i)
    lists.push_back(std::make_unique<EditList>(all_tokens(vocab_, static_cast<float>(i))));
  const auto from = [&](int begin, int count) {
    std::vector<EditList*> out;
    for (int i = begin; i < begin + count; ++i) out.push_back(lists[static_cast<size_t>(i)].get());
    return out;
  };
  for (const int begin : {0, 100, 0}) draw(store, from(begin, 100));
  draw(store, from(0, 2 * slots));
  draw(store, from(slots, slots));
  for (const auto& list : lists) store.release(*list);
  draw(store, from(0, 50));
  for (const auto& list : lists) store.release(*list);
}

// A token costs what a bad word bans or allows again.
TEST_F(EditStoreTest, ATokenSendsWhatItChanges) {
  SamplingParams params;
  std::vector<std::vector<Token>> words = {{3, 4}, {7, 8}};
  for (Token t = 0; t < 3000; ++t) words.push_back({t + 100});
  params.bad_words = std::move(words);
  SlotState slot({.params = params, .history = {}});
  SlotBans bans(slot, vocab_);
  EditStore store(*ops_, staging_, vocab_, 1);
  std::vector<float> logits(static_cast<size_t>(vocab_));
  const auto sent = [&] {
    const uint64_t before = store.sent();
    staging_.begin();
    store.begin(host_tensor(logits.data(), DType::kF32, {1, vocab_}));
    store.add(0, bans.list());
    store.apply();
    return store.sent() - before;
  };
  EXPECT_EQ(sent(), 3000u);
  for (const Token token : {7, 4000, 3, 7, 7, 4999}) {
    slot.accept(token);
    bans.update(slot);
    EXPECT_LE(sent(), 2u) << token;
  }
  EXPECT_EQ(sent(), 0u);
  store.release(bans.list());
}

// Whatever the tokens of a sequence, the list that is updated token by token equals the list that
// its whole history gives.
TEST(SlotBans, FollowTheSequence) {
  constexpr int kVocab = 40;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    uint64_t next = seed * 100000;
    SamplingParams params;
    params.min_tokens = below(next, 12);
    std::vector<std::vector<Token>> bad_words(static_cast<size_t>(below(next, 30)));
    for (std::vector<Token>& word : bad_words)
      for (int n = below(next, 4); n-- > 0;) word.push_back(below(next, 6));
    params.bad_words = std::move(bad_words);
    OpenSlot opening{.params = params, .history = {1, 2, 3, 45, -1}, .prompt_len = 4};
    opening.stop_tokens = {2, 7};
    SlotState slot(opening);
    SlotBans bans(slot, kVocab);
    const auto as_set = [](std::span<const Edit> list) {
      std::map<Token, float> out;
      for (const Edit& edit : list) out[edit.token] = edit.add;
      EXPECT_EQ(out.size(), list.size());
      return out;
    };
    for (int i = 0; i < 60; ++i) {
      slot.accept(below(next, i % 10 ? 6 : 50));
      bans.update(slot);
      SlotBans anew(slot, kVocab);
      ASSERT_EQ(as_set(bans.list().entries()), as_set(anew.list().entries())) << seed;
    }
  }
}

}  // namespace
}  // namespace skiff::sample
