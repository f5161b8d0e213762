#include "engine/shelf_io.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "arch/shard.h"
#include "ops/kv_quant.h"

namespace skiff::engine {
namespace {

constexpr int kBlocks = 12, kBlockSize = 4;

ModelSpec spec_of(int heads) {
  ModelSpec spec;
  spec.hidden = 64;
  spec.vocab = 64;
  spec.layers.assign(2, {.mixer = Gqa{.heads = heads, .kv_heads = heads, .head_dim = 16},
                         .ffn = Dense{.width = 64}});
  return spec;
}

kv::BlockKey key_of(int i) {
  kv::BlockKey key{};
  key.fill(static_cast<uint8_t>(i));
  return key;
}

// Host memory whose blocks are random bytes, and a shelf for them.
class ShelfIoTest : public testing::TestWithParam<int> {  // ranks
 protected:
  ShelfIoTest()
      : form_(std::make_shared<const model::BlockForm>(
            spec_of(4), *shard(spec_of(4), 0, GetParam()), GetParam(), kBlockSize,
            kv_format(DType::kF32))),
        shelf_(std::make_shared<peer::Shelf>(form_->whole_bytes(), kBlocks, 1)),
        host_(kBlocks, std::vector<std::byte>(form_->grouped_bytes())) {
    uint32_t random = 1;
    for (auto& block : host_)
      for (std::byte& b : block) b = static_cast<std::byte>((random = random * 69069 + 1) >> 24);
  }
  // Returns the block in the form of the shelf.
  std::vector<std::byte> whole(const std::vector<std::byte>& block) const {
    if (form_->same()) return block;
    std::vector<std::byte> out(form_->whole_bytes());
    form_->join(block, out);
    return out;
  }
  const std::shared_ptr<const model::BlockForm> form_;
  const std::shared_ptr<peer::Shelf> shelf_;
  std::vector<std::vector<std::byte>> host_;
  Queue<Command> inbox_;
};

// The destructor carries out what was started, so all answers are there behind it.
TEST_P(ShelfIoTest, EveryBlockComesToItsPlaceAndIsAnswered) {
  std::vector<int> places;
  {
    ShelfIo io(
        shelf_, form_, [this](int i) { return std::span(host_[static_cast<size_t>(i)]); }, inbox_,
        /*threads=*/3);
    for (int i = 0; i < kBlocks; ++i) {
      places.push_back(shelf_->reserve(key_of(i)));
      io.start({.id = static_cast<uint64_t>(i) + 1,
                .kind = kv::TierJob::Kind::kWrite,
                .host_block = i,
                .record = places.back(),
                .tokens = {}});
    }
  }
  std::set<uint64_t> answered;
  for (const Command& command : inbox_.drain(/*wait=*/false)) {
    const auto& done = std::get<TierDone>(command);
    EXPECT_TRUE(done.ok);
    answered.insert(done.job);
  }
  EXPECT_EQ(answered.size(), size_t{kBlocks});
  for (int i = 0; i < kBlocks; ++i) {
    shelf_->settle(places[static_cast<size_t>(i)], true);
    const auto loan = shelf_->lend(key_of(i));
    ASSERT_TRUE(loan);
    EXPECT_TRUE(std::ranges::equal(loan->bytes(), whole(host_[static_cast<size_t>(i)])));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShelfIoTest, testing::Values(1, 2),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace skiff::engine
