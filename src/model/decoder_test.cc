#include "model/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "model/golden_cases_testing.h"
#include "model/kv_cache.h"

namespace skiff::model {
namespace {

using testing::golden_dir;

struct Sequence {
  std::vector<int32_t> tokens;
  int first = 0;  // position of tokens[0]
  std::vector<int32_t> pages;
  std::vector<int32_t> wanted;  // which of its rows have logits
};

// Runs steps of many sequences over one cache.
class Stage {
 public:
  Stage(const std::string& name, Ops& ops, DType act, int max_rows, int max_logit_rows)
      : ops_(ops),
        model_(load_model(golden_dir(name), read_model_config(golden_dir(name)),
                          {.precision = uniform_precision(act), .progress = {}}, ops)),
        mesh_(comm::make_solo_mesh()),
        kv_(model_.spec, 16, 16, {.dtype = act}, ops.device()),
        arena_(Buffer(ops.device(),
                      Decoder::arena_bytes(model_.spec, act, max_rows, max_logit_rows, ops))),
        decoder_(model_.spec, model_.weights, ops, mesh_, act) {}

  std::vector<std::vector<float>> step(const std::vector<Sequence>& sequences) {
    std::vector<int32_t> tokens, positions, row_start = {0}, kv_len, pages, wanted;
    int max_rows = 0;
    for (const Sequence& s : sequences) {
      for (int32_t row : s.wanted) wanted.push_back(row + row_start.back());
      for (size_t i = 0; i < s.tokens.size(); ++i)
        positions.push_back(s.first + static_cast<int32_t>(i));
      tokens.insert(tokens.end(), s.tokens.begin(), s.tokens.end());
      row_start.push_back(static_cast<int32_t>(tokens.size()));
      kv_len.push_back(s.first + static_cast<int32_t>(s.tokens.size()));
      pages.insert(pages.end(), s.pages.begin(), s.pages.end());
      max_rows = std::max(max_rows, static_cast<int>(s.tokens.size()));
    }
    const auto seqs = std::ssize(sequences), rows = std::ssize(tokens);
    const auto i32 = [](std::vector<int32_t>& v, std::initializer_list<int64_t> shape) {
      return host_tensor(v.data(), DType::kI32, shape);
    };
    const RaggedBatch batch{.num_seqs = static_cast<int>(seqs),
                            .num_tokens = static_cast<int>(rows),
                            .max_rows = max_rows,
                            .max_kv = *std::ranges::max_element(kv_len),
                            .tokens = i32(tokens, {rows}),
                            .positions = i32(positions, {rows}),
                            .row_start = i32(row_start, {seqs + 1}),
                            .kv_len = i32(kv_len, {seqs}),
                            .pages = i32(pages, {seqs, std::ssize(pages) / seqs}),
                            .out_rows = i32(wanted, {std::ssize(wanted)}),
                            .host_row_start = row_start,
                            .host_kv_len = kv_len};
    arena_.reset();
    ops_.begin_step(batch, {});
    last_ = decoder_.forward(batch, kv_.layers(), arena_);
    return rows_of(last_.logits);
  }
  // Logits of all rows of the step before.
  std::vector<std::vector<float>> head_of_hidden() {
    const Tensor logits = arena_.take(DType::kF32, {last_.hidden.rows(), model_.spec.vocab});
    ops_.linear(logits, last_.hidden, model_.weights.head);
    return rows_of(logits);
  }
  const Arena& arena() const { return arena_; }

 private:
  static std::vector<std::vector<float>> rows_of(const Tensor& t) {
    std::vector<std::vector<float>> out;
    for (int64_t r = 0; r < t.rows(); ++r)
      out.emplace_back(t.row<float>(r), t.row<float>(r) + t.cols());
    return out;
  }

  Ops& ops_;
  LoadedModel model_;
  comm::Mesh mesh_;
  KvCache kv_;
  Arena arena_;
  Decoder decoder_;
  Forward last_;
};

std::vector<int32_t> piece(const std::vector<int32_t>& from, size_t at, size_t n) {
  return {from.begin() + static_cast<ptrdiff_t>(at), from.begin() + static_cast<ptrdiff_t>(at + n)};
}

std::vector<float> row_of(const testing::Golden& golden, size_t row) {
  const size_t vocab = golden.logits.size() / golden.prompt.size();
  return {golden.logits.begin() + static_cast<ptrdiff_t>(row * vocab),
          golden.logits.begin() + static_cast<ptrdiff_t>((row + 1) * vocab)};
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, float bound) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], bound) << i;
}

// A prompt chunk, an idle sequence and a decode share a step; pages lie in any order.
TEST(Decoder, MixedStepEqualsTheSequencesAlone) {
  for (const char* name : {"llama", "mistral", "qwen2", "ernie45_moe", "deepseek_v3"}) {
    const testing::Golden golden = testing::read_golden(name);
    // The bound of golden_test.cc.
    const float bound = 8 * golden.sensitivity * std::sqrt(128.0f) * 0x1p-24f;
    const auto ops = make_cpu_ops(2);
    Stage stage(name, *ops, DType::kF32, 80, 4);
    const std::vector<int32_t> a = {15, 3, 8, 0, 11, 5}, b = {1, 14, 2, 9, 4, 7},
                               idle = {6, 6, 6, 6, 6, 6};
    stage.step({{piece(golden.prompt, 0, 40), 0, a, {}}, {piece(golden.prompt, 0, 17), 0, b, {}}});
    const auto logits = stage.step({{piece(golden.prompt, 40, 1), 40, a, {0}},
                                    {{}, 0, idle, {}},
                                    {piece(golden.prompt, 17, 60), 17, b, {0, 59}}});
    ASSERT_EQ(logits.size(), 3u);
    expect_near(logits[0], row_of(golden, 40), bound);
    expect_near(logits[1], row_of(golden, 17), bound);
    expect_near(logits[2], row_of(golden, 76), bound);
  }
}

// Every row's hidden state is there, also where nobody wants logits.
TEST(Decoder, LogitsAreTheHeadOfTheHiddenStates) {
  const testing::Golden golden = testing::read_golden("qwen2");
  const auto ops = make_cpu_ops(2);
  Stage stage("qwen2", *ops, DType::kF32, 20, 40);
  const std::vector<int32_t> tokens = piece(golden.prompt, 0, 20), wanted = {0, 7, 19};
  const auto logits = stage.step({{tokens, 0, {0, 1}, wanted}});
  const auto all = stage.head_of_hidden();
  ASSERT_EQ(all.size(), tokens.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_EQ(logits[i], all[static_cast<size_t>(wanted[i])]) << "row " << wanted[i];
}

TEST(Decoder, TakesExactlyTheArenaThatIsPlanned) {
  for (const std::string& name : testing::golden_names(false)) {
    for (const auto& ops : {make_reference_ops(), make_cpu_ops(1)}) {
      for (const DType act : {DType::kF32, DType::kBF16}) {
        const testing::Golden golden = testing::read_golden(name);
        Stage stage(name, *ops, act, 37, 5);
        stage.step({{piece(golden.prompt, 0, 37), 0, {0, 1, 2}, {0, 9, 20, 30, 36}}});
        EXPECT_EQ(stage.arena().peak(), stage.arena().capacity()) << name;
      }
    }
  }
}

// Latents are attended to in one form whatever the number of rows, so that a row has the same bits
// wherever its prompt was cut, and over blocks that another sequence has filled.
class LatentsTest : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr size_t kPage = 16;

  std::vector<std::vector<float>> run(size_t from, size_t to, const std::vector<int32_t>& pages) {
    std::vector<int32_t> wanted(to - from);
    std::iota(wanted.begin(), wanted.end(), 0);
    return stage_.step(
        {{piece(golden_.prompt, from, to - from), static_cast<int>(from), pages, wanted}});
  }

  const testing::Golden golden_ = testing::read_golden("deepseek_v3");
  const size_t rows_ = golden_.prompt.size();
  std::unique_ptr<Ops> ops_ = make_cpu_ops(2);
  Stage stage_{"deepseek_v3", *ops_, GetParam(), 96, 96};
  const std::vector<int32_t> first_ = {3, 9, 0, 14, 5, 11};
  const std::vector<std::vector<float>> whole_ = run(0, rows_, first_);
};

TEST_P(LatentsTest, DoNotDependOnWhereAPromptIsCut) {
  const std::vector<int32_t> second = {1, 2, 15, 4, 6, 7};
  for (size_t cut = 1; cut < rows_; ++cut) {
    std::vector<std::vector<float>> rows = run(0, cut, second);
    std::ranges::move(run(cut, rows_, second), std::back_inserter(rows));
    ASSERT_EQ(rows, whole_) << "cut at " << cut;
  }
}

TEST_P(LatentsTest, DoNotDependOnHitsOfThePrefix) {
  for (size_t blocks = 1; blocks * kPage < rows_; ++blocks) {
    std::vector<int32_t> pages = {1, 2, 15, 4, 6, 7};
    std::copy_n(first_.begin(), blocks, pages.begin());
    const auto rows = run(blocks * kPage, rows_, pages);
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(),
                           whole_.end() - static_cast<ptrdiff_t>(rows.size()), whole_.end()))
        << blocks << " blocks";
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, LatentsTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace skiff::model
