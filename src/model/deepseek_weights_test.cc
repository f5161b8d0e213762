// The weights of DeepSeek's checkpoints: how they are cut, what is left unread, and what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "model/model_testing.h"
#include "model/single.h"
#include "ops/reference/reference_ops.h"
#include "weights/codes.h"

namespace skiff::model {
namespace {

using ::testing::AllOf;
using testing::FileTensor;
using ::testing::HasSubstr;
using testing::TestModel;

constexpr int kHidden = 32, kHeads = 2, kQRank = 32, kKvRank = 16, kNope = 6, kRope = 8, kV = 10;
constexpr int kExperts = 4, kWidth = 16, kBlock = 16;

Json config(const Json& changes) {
  Json all = {{"hidden_size", kHidden},
              {"num_attention_heads", kHeads},
              {"q_lora_rank", kQRank},
              {"kv_lora_rank", kKvRank},
              {"qk_nope_head_dim", kNope},
              {"qk_rope_head_dim", kRope},
              {"v_head_dim", kV},
              {"first_k_dense_replace", 1},
              {"n_routed_experts", kExperts},
              {"num_experts_per_tok", 2},
              {"n_shared_experts", 1},
              {"moe_intermediate_size", kWidth},
              {"n_group", 2},
              {"topk_group", 1}};
  all.update(changes);
  return all;
}

class DeepseekWeights : public ::testing::Test {
 protected:
  DeepseekWeights() {
    const Linear16 lines[] = {{"q_a_proj", kQRank, kHidden},
                              {"q_b_proj", int64_t{kHeads} * (kNope + kRope), kQRank},
                              {"kv_a_proj_with_mqa", kKvRank + kRope, kHidden},
                              {"kv_b_proj", int64_t{kHeads} * (kNope + kV), kKvRank},
                              {"o_proj", kHidden, int64_t{kHeads} * kV}};
    matrix("model.embed_tokens", 40, kHidden, false);
    matrix("lm_head", 40, kHidden, false);
    vector("model.norm.weight", kHidden);
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
      for (const Linear16& l : lines) matrix(layer + "self_attn." + l.name, l.out, l.in);
      vector(layer + "self_attn.q_a_layernorm.weight", kQRank);
      vector(layer + "self_attn.kv_a_layernorm.weight", kKvRank);
      vector(layer + "input_layernorm.weight", kHidden);
      vector(layer + "post_attention_layernorm.weight", kHidden);
    }
    gated("model.layers.0.mlp.", 24);
    const std::string moe = "model.layers.1.mlp.";
    matrix(moe + "gate", kExperts, kHidden, false);
    vector(moe + "gate.e_score_correction_bias", kExperts);
    gated(moe + "shared_experts.", kWidth);
    for (int e = 0; e < kExperts; ++e) gated(fmt::format("{}experts.{}.", moe, e), kWidth);
  }

  // The same values as blocks of 8-bit floats where they are stored so, or as floats.
  std::vector<FileTensor> file(bool quantized) const {
    std::vector<FileTensor> out;
    for (const auto& [name, m] : matrices_) {
      if (quantized && m.blocks) {
        out.push_back({name + ".weight", "F8_E4M3", {m.out, m.in}, m.codes});
        out.push_back({name + ".weight_scale_inv",
                       "F32",
                       {m.down(), m.across()},
                       testing::f32_bytes(m.scales)});
      } else {
        out.push_back({name + ".weight", "F32", {m.out, m.in}, testing::f32_bytes(values(m))});
      }
    }
    for (const auto& [name, v] : vectors_)
      out.push_back({name, "F32", {std::ssize(v)}, testing::f32_bytes(v)});
    return out;
  }

  LoadedModel load(const std::vector<FileTensor>& tensors, Json changes = Json::object(),
                   bool quantized = false) {
    if (quantized)
      changes["quantization_config"] = {{"quant_method", "fp8"},
                                        {"weight_block_size", {kBlock, kBlock}}};
    const TestModel model("DeepseekV3ForCausalLM", config(changes));
    model.write("model.safetensors", testing::safetensors_bytes(tensors));
    return load_model(model.dir(), model.config(), {.progress = {}}, *ops_);
  }
  std::string refusal(const std::vector<FileTensor>& tensors,
                      const Json& changes = Json::object()) {
    try {
      load(tensors, changes);
      return "accepted";
    } catch (const LoadError& e) {
      return e.what();
    }
  }
  std::vector<float> logits(const LoadedModel& model) {
    comm::Mesh mesh = comm::make_solo_mesh();
    SingleSequence sequence(model, *ops_, mesh, DType::kF32, 8, 8);
    const Tensor out = sequence.forward(std::vector<int32_t>{1, 5, 39, 7, 7, 12});
    return {out.as<float>(), out.as<float>() + out.elements()};
  }

  struct Linear16 {
    const char* name;
    int64_t out, in;
  };
  struct Matrix {
    int64_t out, in;
    bool blocks;
    std::string codes;
    std::vector<float> scales;

    int64_t down() const { return (out + kBlock - 1) / kBlock; }
    int64_t across() const { return (in + kBlock - 1) / kBlock; }
  };
  static std::vector<float> values(const Matrix& m) {
    std::vector<float> out;
    for (int64_t r = 0; r < m.out; ++r)
      for (int64_t c = 0; c < m.in; ++c) {
        const auto code = static_cast<uint8_t>(m.codes[static_cast<size_t>(r * m.in + c)]);
        const double scale = m.scales[static_cast<size_t>(r / kBlock * m.across() + c / kBlock)];
        out.push_back(static_cast<float>(scale * code_value(&code, DType::kF8E4M3, 0)));
      }
    return out;
  }
  void matrix(const std::string& name, int64_t out, int64_t in, bool blocks = true) {
    Matrix m{.out = out, .in = in, .blocks = blocks, .codes = {}, .scales = {}};
    for (int64_t i = 0; i < out * in; ++i)  // exponents of the middle, either sign
      m.codes += static_cast<char>((random_() & 0x87) | ((4 + random_() % 5) << 3));
    for (int64_t i = 0; i < m.down() * m.across(); ++i)
      m.scales.push_back(0.05f + static_cast<float>(random_() % 1000) * 2e-4f);
    matrices_.emplace(name, std::move(m));
  }
  void vector(const std::string& name, int64_t n) {
    std::vector<float>& v = vectors_[name];
    for (int64_t i = 0; i < n; ++i)
      v.push_back(0.5f + static_cast<float>(random_() % 1000) * 1e-3f);
  }
  void gated(const std::string& prefix, int64_t width) {
    matrix(prefix + "gate_proj", width, kHidden);
    matrix(prefix + "up_proj", width, kHidden);
    matrix(prefix + "down_proj", kHidden, width);
  }

  std::mt19937 random_{5};
  std::map<std::string, Matrix> matrices_;
  std::map<std::string, std::vector<float>> vectors_;
  std::unique_ptr<Ops> ops_ = make_reference_ops();
};

// Rows of kv_b_proj: of each head those for keys, then those for values.
TEST_F(DeepseekWeights, KeysAndValuesAreCutApart) {
  const LoadedModel model = load(file(false));
  const std::vector<float> kv_b = values(matrices_.at("model.layers.1.self_attn.kv_b_proj"));
  const auto& w = std::get<MlaWeights>(model.weights.layers[1].mixer);
  EXPECT_EQ(w.absorb.experts, kHeads);
  EXPECT_EQ(w.absorb.weight.dim, (std::array<int64_t, 4>{kHeads, kKvRank, kNope, 1}));
  EXPECT_EQ(w.value.weight.dim, (std::array<int64_t, 4>{kHeads, kV, kKvRank, 1}));
  const auto stored = [&](int64_t head, int64_t row, int64_t col) {
    return kv_b[static_cast<size_t>((head * (kNope + kV) + row) * kKvRank + col)];
  };
  for (int64_t h = 0; h < kHeads; ++h)
    for (int64_t c = 0; c < kKvRank; ++c) {
      for (int64_t n = 0; n < kNope; ++n)
        ASSERT_EQ(w.absorb.weight.as<float>()[(h * kKvRank + c) * kNope + n], stored(h, n, c));
      for (int64_t v = 0; v < kV; ++v)
        ASSERT_EQ(w.value.weight.as<float>()[(h * kV + v) * kKvRank + c], stored(h, kNope + v, c));
    }
}

// The weights are the same however few rows are read at a time.
TEST_F(DeepseekWeights, AreCutAlikeInPieces) {
  const TestModel model("DeepseekV3ForCausalLM", config(Json::object()));
  model.write("model.safetensors", testing::safetensors_bytes(file(false)));
  const auto run = [&](int threads, size_t chunk) {
    return logits(load_model(model.dir(), model.config(),
                             {.progress = {}, .threads = threads, .chunk_bytes = chunk}, *ops_));
  };
  const std::vector<float> whole = run(1, size_t{1} << 30);
  EXPECT_EQ(run(3, 1), whole);
  EXPECT_EQ(run(2, 200), whole);
}

// A backend that multiplies plain weights only.
class FloatsOnly final : public reference::ReferenceOps {
 public:
  bool multiplies(const WeightFormat& format) const override { return !format.quantized(); }
};

// Published checkpoints have blocks of 8-bit floats, the last ones of kv_a_proj_with_mqa partial.
TEST_F(DeepseekWeights, BlocksMeanWhatTheirValuesDo) {
  ops_ = std::make_unique<FloatsOnly>();
  EXPECT_EQ(logits(load(file(true), Json::object(), true)), logits(load(file(false))));
}

TEST_F(DeepseekWeights, BlocksAreKeptButForTheStacksOfHeads) {
  const LoadedModel model = load(file(true), Json::object(), true);
  const auto& w = std::get<MlaWeights>(model.weights.layers[0].mixer);
  for (const Linear* l : {&w.latent, &w.q, &w.out}) {
    EXPECT_EQ(l->format.dtype, DType::kF8E4M3);
    EXPECT_EQ(l->format.block_out, kBlock);
  }
  EXPECT_EQ(w.latent.weight.rows(), kQRank + kKvRank + kRope);
  EXPECT_EQ(w.latent.scale.rows(), 4) << "32 + 24 rows";
  for (const Linear* l : {&w.absorb, &w.value}) EXPECT_FALSE(l->format.quantized());
  const auto& moe = std::get<MoeWeights>(model.weights.layers[1].ffn);
  EXPECT_EQ(moe.gate_up.format.dtype, DType::kF8E4M3);
  EXPECT_EQ(moe.down.format.dtype, DType::kF8E4M3);
  EXPECT_EQ(moe.down.experts, kExperts + 1) << "the shared one is one of the stack";
  EXPECT_EQ(moe.router.format, WeightFormat{DType::kF32});
  for (const float x : logits(model)) EXPECT_TRUE(std::isfinite(x));
}

// The layer behind the last, and its copies of embedding and head, have no use without drafts.
TEST_F(DeepseekWeights, LayersThatPredictFurtherTokensAreLeftUnread) {
  std::vector<FileTensor> tensors = file(false);
  const std::vector<float> without = logits(load(tensors));
  for (const char* name : {"enorm.weight", "shared_head.head.weight", "mlp.gate.weight"})
    tensors.push_back({fmt::format("model.layers.2.{}", name), "F32", {1}, std::string(4, 'x')});
  EXPECT_EQ(logits(load(tensors)), without);
  EXPECT_THAT(refusal(tensors, {{"num_nextn_predict_layers", 0}}),
              AllOf(HasSubstr("has 3 tensors that DeepseekV3ForCausalLM does not"),
                    HasSubstr("model.layers.2.enorm.weight")));
}

TEST_F(DeepseekWeights, ACorrectionBiasMustBeFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    vectors_.at("model.layers.1.mlp.gate.e_score_correction_bias")[2] = bad;
    EXPECT_THAT(refusal(file(false)),
                AllOf(HasSubstr("e_score_correction_bias"), HasSubstr("not finite, number 2")));
  }
}

TEST_F(DeepseekWeights, OnesThatAreMissingAreNamed) {
  for (const char* name : {"kv_b_proj", "kv_a_proj_with_mqa", "q_b_proj"}) {
    std::vector<FileTensor> tensors = file(false);
    const std::string whole = fmt::format("model.layers.0.self_attn.{}.weight", name);
    std::erase_if(tensors, [&](const FileTensor& t) { return t.name == whole; });
    EXPECT_THAT(refusal(tensors), HasSubstr("lacks")) << name;
  }
}

}  // namespace
}  // namespace skiff::model
