// What quantized caches cost in quality: teacher-forced beside a cache of bfloat16, with everything
// else in float32.
#include <gtest/gtest.h>
#include <skiff_test_paths.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/json.h"
#include "model/single.h"
#include "ops/kv_quant.h"

namespace skiff::model {
namespace {

// Tokens of which those from `scored` on are to be predicted.
struct Text {
  std::vector<int32_t> ids;
  size_t scored = 1;
};

struct Quality {
  double loss = 0;        // mean negative log-likelihood of a scored token
  double right = 0;       // fraction of scored tokens that are the first choice
  double same = 0;        // fraction of scored tokens whose first choice is that of the baseline
  double replies = 0;     // fraction of texts in which all first choices are the text's own tokens
  double divergence = 0;  // mean KL divergence from the baseline, in nats
};

using Rows = std::vector<std::vector<double>>;  // log-probabilities of each scored token's place

std::vector<double> log_softmax(const float* row, int64_t n) {
  const double top = *std::max_element(row, row + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(row[i]) - top);
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<double>(row[i]) - top - std::log(sum));
  return out;
}

size_t first_choice(const std::vector<double>& row) {
  return static_cast<size_t>(std::ranges::max_element(row) - row.begin());
}

class KvQuality : public ::testing::Test {
 protected:
  void load(const std::string& dir) {
    model_.emplace(load_model(dir, read_model_config(dir), {.progress = {}}, *ops_));
  }
  Rows predict(const Text& text, const KvFormat& kv) {
    const auto n = static_cast<int>(text.ids.size());
    comm::Mesh mesh = comm::make_solo_mesh();
    SingleSequence sequence(*model_, *ops_, mesh, DType::kF32, n, n, kv);
    const Tensor logits = sequence.forward(text.ids);
    Rows rows;
    for (size_t at = text.scored; at < text.ids.size(); ++at)
      rows.push_back(log_softmax(logits.row<float>(static_cast<int64_t>(at) - 1), logits.cols()));
    return rows;
  }
  // A text of n tokens after the model's first one.
  Text draw(int n, uint64_t seed) {
    constexpr int32_t kBegin = 1;
    comm::Mesh mesh = comm::make_solo_mesh();
    SingleSequence sequence(*model_, *ops_, mesh, DType::kF32, n, 1);
    Text text{.ids = {kBegin}};
    while (std::ssize(text.ids) < n) {
      const Tensor logits = sequence.forward({&text.ids.back(), 1});
      const std::vector<double> row = log_softmax(logits.row<float>(0), logits.cols());
      double left = uniform_draw(seed, text.ids.size());
      int32_t token = 0;
      while (token + 1 < std::ssize(row) && (left -= std::exp(row[static_cast<size_t>(token)])) > 0)
        ++token;
      text.ids.push_back(token);
    }
    return text;
  }
  // Compares a cache of that dtype with one of bfloat16, and prints both.
  Quality lost(const char* what, const std::vector<Text>& texts, DType dtype) {
    SKIFF_CHECK(!texts.empty());
    Quality plain, quantized;
    double tokens = 0;
    for (const Text& text : texts) {
      const Rows want = predict(text, {.dtype = DType::kBF16});
      const Rows got = predict(text, kv_format(dtype));
      bool whole = true, whole_before = true;
      for (size_t i = 0; i < want.size(); ++i, ++tokens) {
        const auto token = static_cast<size_t>(text.ids[text.scored + i]);
        plain.loss -= want[i][token];
        quantized.loss -= got[i][token];
        plain.right += first_choice(want[i]) == token;
        quantized.right += first_choice(got[i]) == token;
        quantized.same += first_choice(want[i]) == first_choice(got[i]);
        whole &= first_choice(got[i]) == token;
        whole_before &= first_choice(want[i]) == token;
        for (size_t v = 0; v < want[i].size(); ++v)
          quantized.divergence += std::exp(want[i][v]) * (want[i][v] - got[i][v]);
      }
      quantized.replies += whole;
      plain.replies += whole_before;
    }
    const auto count = static_cast<double>(texts.size());
    const Quality lost = {.loss = (quantized.loss - plain.loss) / tokens,
                          .right = (plain.right - quantized.right) / tokens,
                          .same = 1 - quantized.same / tokens,
                          .replies = (plain.replies - quantized.replies) / count,
                          .divergence = quantized.divergence / tokens};
    std::printf(
        "%s, %s: perplexity %+.4f %%, accuracy %+.3f points, other first choices %.3f %%, whole "
        "replies lost %.2f %% of %.0f, mean divergence %.2e over %.0f tokens\n",
        what, describe(kv_format(dtype)).c_str(), 100 * std::expm1(lost.loss), -100 * lost.right,
        100 * lost.same, 100 * lost.replies, count, lost.divergence, tokens);
    return lost;
  }

  std::unique_ptr<Ops> ops_ = make_cpu_ops(2);
  std::optional<LoadedModel> model_;
};

// A reply counts as lost if greedy decoding would give another one, so no more answers can turn
// wrong than that.
TEST_F(KvQuality, OfTheDemoModel) {
  const std::string dir = std::string(SKIFF_SOURCE_DIR) + "/models/demo";
  if (!std::filesystem::exists(dir + "/model.safetensors")) GTEST_SKIP() << "no models/demo";
  load(dir);
  std::vector<Text> texts;
  const Json cases = read_json_file(dir + "/expected_greedy.json");
  for (const Json& answer : cases) {
    Text text{.ids = answer.at("prompt_ids").get<std::vector<int32_t>>()};
    text.scored = text.ids.size();
    const auto reply = answer.at("output_ids").get<std::vector<int32_t>>();
    text.ids.insert(text.ids.end(), reply.begin(), reply.end());
    texts.push_back(std::move(text));
  }
  for (const DType dtype : {DType::kI8, DType::kF8E4M3}) {
    const Quality q = lost("demo", texts, dtype);
    EXPECT_LE(q.replies, 0.01);
    EXPECT_LE(std::expm1(q.loss), 0.01);
  }
  // Four bits are for models with room to spare; this bound only tells whether they work.
  EXPECT_LE(lost("demo", texts, DType::kU4).same, 0.1);
}

// On texts that the model itself draws at temperature 1, so that it is no better at them than at
// what it was trained for.
TEST_F(KvQuality, OfStories260K) {
  const std::string dir = std::string(SKIFF_SHARED_DIR) + "/data/models/stories260K-hf";
  if (!std::filesystem::exists(dir)) GTEST_SKIP() << "no reference data at " << dir;
  load(dir);
  std::vector<Text> texts;
  for (uint64_t seed = 0; seed < 30; ++seed) texts.push_back(draw(200, seed));
  const Quality i8 = lost("stories260K", texts, DType::kI8);
  EXPECT_LE(i8.right, 0.01);
  EXPECT_LE(std::expm1(i8.loss), 0.01);
  // Heads of 8 elements hardly average the errors of three bits of mantissa: this model loses more
  // than the 1 % of others.
  const Quality f8 = lost("stories260K", texts, DType::kF8E4M3);
  EXPECT_LE(f8.right, 0.01);
  EXPECT_LE(std::expm1(f8.loss), 0.02);
  // Four bits are too few for it: this only tells whether they work at all.
  EXPECT_LE(std::expm1(lost("stories260K", texts, DType::kU4).loss), 1);
}

}  // namespace
}  // namespace skiff::model
