// A model whose linear weights are of one type of GGUF computes what the values of its blocks do in
// safetensors, and its weights are kept in few bits where the table of docs/quantization.md says
// so.
//
// Weights are the same numbers, so only float32 sums differ: they have at most 256 terms and stand
// in one layer and a head. Scales multiply sums here and elements there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gguf/gguf_writer_testing.h"
#include "model/gguf_blocks_testing.h"
#include "model/model_testing.h"
#include "model/single.h"
#include "model/stored_forms.h"
#include "ops/cpu/backend.h"
#include "ops/reference/reference_ops.h"

namespace skiff::model {
namespace {

using testing::FileTensor;
using testing::GgufBlockCase;
using testing::GgufFileTensor;
using testing::kGgufBlocks;
using testing::TestModel;

constexpr int kHidden = 256, kVocab = 40;

struct Weight {
  std::string torch, gguf;
  int64_t rows, cols;
};

const Weight kWeights[] = {
    {"model.layers.0.self_attn.q_proj", "blk.0.attn_q", kHidden, kHidden},
    {"model.layers.0.self_attn.k_proj", "blk.0.attn_k", kHidden, kHidden},
    {"model.layers.0.self_attn.v_proj", "blk.0.attn_v", kHidden, kHidden},
    {"model.layers.0.self_attn.o_proj", "blk.0.attn_output", kHidden, kHidden},
    {"model.layers.0.mlp.gate_proj", "blk.0.ffn_gate", 512, kHidden},
    {"model.layers.0.mlp.up_proj", "blk.0.ffn_up", 512, kHidden},
    {"model.layers.0.mlp.down_proj", "blk.0.ffn_down", kHidden, 512},
    {"model.embed_tokens", "token_embd", kVocab, kHidden},
    {"lm_head", "output", kVocab, kHidden},
};
const Weight kNorms[] = {
    {"model.norm", "output_norm", 0, 0},
    {"model.layers.0.input_layernorm", "blk.0.attn_norm", 0, 0},
    {"model.layers.0.post_attention_layernorm", "blk.0.ffn_norm", 0, 0},
};

// Qwen3's architecture, whose q and k are not permuted, in both forms.
class Model {
 public:
  explicit Model(const GgufBlockCase& type)
      : torch_("Qwen3ForCausalLM", {{"hidden_size", kHidden},
                                    {"intermediate_size", 512},
                                    {"num_hidden_layers", 1},
                                    {"num_key_value_heads", 4},
                                    {"head_dim", 64},
                                    {"rms_norm_eps", 0.00048828125},
                                    {"rope_theta", 10000.0}}),
        gguf_("Qwen3ForCausalLM") {
    std::vector<FileTensor> torch;
    std::vector<GgufFileTensor> gguf;
    const auto vector = [&](const std::string& name, const std::string& other, int64_t size) {
      const std::string ones =
          testing::f32_bytes(std::vector<float>(static_cast<size_t>(size), 1.0f));
      torch.push_back({name + ".weight", "F32", {size}, ones});
      gguf.push_back({other + ".weight", 0, {size}, ones});
    };
    for (const Weight& norm : kNorms) vector(norm.torch, norm.gguf, kHidden);
    vector("model.layers.0.self_attn.q_norm", "blk.0.attn_q_norm", 64);
    vector("model.layers.0.self_attn.k_norm", "blk.0.attn_k_norm", 64);
    uint32_t seed = 1;
    for (const Weight& w : kWeights) {
      const std::string blocks =
          testing::random_gguf_blocks(type.type, w.rows * w.cols, type.halves, type.high, seed++);
      torch.push_back(
          {w.torch + ".weight",
           "F32",
           {w.rows, w.cols},
           testing::f32_bytes(testing::gguf_values(type.type, w.rows, w.cols, blocks))});
      gguf.push_back({w.gguf + ".weight", find_gguf_type(type.type)->id, {w.rows, w.cols}, blocks});
    }
    torch_.write("model.safetensors", testing::safetensors_bytes(torch));
    gguf_.write("model.gguf",
                testing::gguf_bytes({{"general.architecture", "qwen3"},
                                     {"qwen3.block_count", 1u},
                                     {"qwen3.embedding_length", 256u},
                                     {"qwen3.feed_forward_length", 512u},
                                     {"qwen3.context_length", 128u},
                                     {"qwen3.attention.head_count", 4u},
                                     {"qwen3.attention.head_count_kv", 4u},
                                     {"qwen3.attention.key_length", 64u},
                                     {"qwen3.attention.layer_norm_rms_epsilon", 0.00048828125},
                                     {"qwen3.rope.freq_base", 10000.0}},
                                    gguf));
  }
  std::string torch() const { return torch_.dir(); }
  std::string gguf() const { return gguf_.dir() + "/model.gguf"; }

 private:
  TestModel torch_, gguf_;
};

std::vector<float> logits(const std::string& path, Ops& ops) {
  const LoadedModel model = load_model(path, read_model_config(path), {.progress = {}}, ops);
  comm::Mesh mesh = comm::make_solo_mesh();
  SingleSequence sequence(model, ops, mesh, DType::kF32, 8, 8);
  const Tensor out = sequence.forward(std::vector<int32_t>{1, 5, 39, 7, 7, 12});
  return {out.as<float>(), out.as<float>() + out.elements()};
}

class GgufTypes : public ::testing::TestWithParam<GgufBlockCase> {};

TEST_P(GgufTypes, ComputeWhatTheirValuesDo) {
  const Model model(GetParam());
  const auto judge = make_reference_ops(), cpu = make_cpu_ops(2);
  const std::vector<float> want = logits(model.torch(), *judge);
  float size = 0;
  for (const float x : want) size = std::max(size, std::abs(x));
  ASSERT_TRUE(std::isfinite(size) && size > 0) << size;
  for (Ops* ops : {judge.get(), cpu.get()}) {
    const std::vector<float> met = logits(model.gguf(), *ops);
    ASSERT_EQ(met.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(met[i], want[i], size * 256 * std::sqrt(256) * 0x1p-24f) << ops->name() << i;
  }
}

TEST_P(GgufTypes, AreKeptInFewBits) {
  const Model model(GetParam());
  const auto cpu = make_cpu_ops(1);
  int kept = 0;
  for (const StoredForm& form : stored_forms(model.gguf(), read_model_config(model.gguf()))) {
    EXPECT_EQ(form.lost, "");
    kept += form.format.quantized() && cpu->multiplies(form.format);
  }
  EXPECT_EQ(kept, 5);  // qkv, out, gate and up, down, and the head
}

INSTANTIATE_TEST_SUITE_P(All, GgufTypes, ::testing::ValuesIn(kGgufBlocks),
                         [](const auto& info) { return std::string(info.param.type); });

}  // namespace
}  // namespace skiff::model
