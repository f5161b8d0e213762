#include "model/kv_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/model_testing.h"
#include "model/single.h"
#include "tensor/convert.h"

namespace skiff::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FileTensor;
using ::testing::HasSubstr;
using testing::TestModel;

// Two layers with 4 heads and 2 KV heads.
class KvScalesTest : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::vector<float>& numbers,
           std::vector<int64_t> shape = {1}) {
    tensors_.push_back({name, "F32", std::move(shape), testing::f32_bytes(numbers)});
  }
  // The scales of both layers under names with these endings.
  void add_all(const std::string& k, const std::string& v, float first = 0.5f) {
    for (const char* layer : {"0", "1"}) {
      const std::string attention = std::string("model.layers.") + layer + ".self_attn";
      add(attention + k, {first});
      add(attention + v, {first / 2});
      first *= 4;
    }
  }
  void write() { folder_.write("model.safetensors", testing::safetensors_bytes(tensors_)); }
  std::vector<KvScales> scales(DType dtype = DType::kF8E4M3) {
    write();
    return read_kv_scales(folder_.dir(), config_, dtype).value_or(std::vector<KvScales>{});
  }
  std::string refusal(DType dtype = DType::kF8E4M3) {
    try {
      scales(dtype);
    } catch (const LoadError& e) {
      return e.what();
    }
    return "accepted";
  }
  // Logits of the last of six tokens, computed at once or one after the other.
  std::vector<float> logits(const KvFormat& kv, bool at_once) {
    write();
    const auto ops = make_reference_ops();
    LoadOptions options{.progress = {}};
    options.precision.kv = kv;
    const LoadedModel model = load_model(folder_.dir(), config_, options, *ops);
    comm::Mesh mesh = comm::make_solo_mesh();
    SingleSequence sequence(model, *ops, mesh, DType::kF32, 8, 8, kv);
    const std::vector<int32_t> prompt = {1, 5, 39, 7, 2, 11};
    Tensor out;
    if (at_once) out = sequence.forward(prompt);
    for (size_t i = 0; !at_once && i < prompt.size(); ++i)
      out = sequence.forward(std::span(prompt).subspan(i, 1));
    const float* last = out.row<float>(out.rows() - 1);
    return {last, last + out.cols()};
  }

  TestModel folder_{"LlamaForCausalLM"};
  ModelConfig config_ = folder_.config();
  std::vector<FileTensor> tensors_ = TestModel::llama_tensors();
};

TEST_F(KvScalesTest, AreNothingWithoutTensors) { EXPECT_TRUE(scales().empty()); }

TEST_F(KvScalesTest, AreReadUnderTheNamesOfEachWriter) {
  struct Writer {
    const char *k, *v;
    float factor;  // from the stored number to the scale of an eight-bit float
  };
  for (const Writer& w :
       {Writer{".k_scale", ".v_scale", 1},
        {".k_proj.k_scale", ".v_proj.v_scale", 1},
        {".k_proj.output_scale", ".v_proj.output_scale", 1},
        {".cachek_matmul.activation_scale", ".cachev_matmul.activation_scale", 1 / 448.0f}}) {
    tensors_ = TestModel::llama_tensors();
    add_all(w.k, w.v);
    const std::vector<KvScales> met = scales();
    ASSERT_EQ(met.size(), 2u) << w.k;
    EXPECT_THAT(met[0].k, ElementsAre(0.5f * w.factor, 0.5f * w.factor)) << w.k;
    EXPECT_THAT(met[0].v, ElementsAre(0.25f * w.factor, 0.25f * w.factor)) << w.k;
    EXPECT_FLOAT_EQ(met[1].k[1], 2 * w.factor) << w.k;
    EXPECT_FLOAT_EQ(met[1].v[0], 1 * w.factor) << w.k;
    // The same largest magnitude in 127 steps.
    EXPECT_FLOAT_EQ(scales(DType::kI8)[1].k[0], 2 * w.factor * 448 / 127) << w.k;
  }
  config_.quantization.kv_elements = DType::kI8;
  tensors_ = TestModel::llama_tensors();
  add_all(".k_scale", ".v_scale");
  EXPECT_EQ(scales(DType::kI8)[0].k[0], 0.5f);
  EXPECT_FLOAT_EQ(scales()[0].k[0], 0.5f * 127 / 448);
}

// Older files have one number for keys and values.
TEST_F(KvScalesTest, OfBothHalvesMayBeOneTensor) {
  for (const char* layer : {"0", "1"})
    add(std::string("model.layers.") + layer + ".self_attn.kv_scale", {0.5f}, {});
  EXPECT_TRUE(is_kv_scale("model.layers.0.self_attn.kv_scale"));
  const std::vector<KvScales> met = scales();
  ASSERT_EQ(met.size(), 2u);
  EXPECT_THAT(met[1].k, ElementsAre(0.5f, 0.5f));
  EXPECT_THAT(met[1].v, ElementsAre(0.5f, 0.5f));
  add("model.layers.0.self_attn.k_scale", {0.5f});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("self_attn.kv_scale"), HasSubstr("self_attn.k_scale"),
                               HasSubstr("of the same cache")));
}

TEST_F(KvScalesTest, MayDifferBetweenHeads) {
  add("model.layers.0.self_attn.k_scale", {0.5f, 0.25f}, {2, 1, 1});
  add("model.layers.0.self_attn.v_scale", {1, 2, 3, 4}, {4});  // one for each query head
  add("model.layers.1.self_attn.k_scale", {3}, {});
  add("model.layers.1.self_attn.v_scale", {5, 6}, {2});
  const std::vector<KvScales> met = scales();
  EXPECT_THAT(met[0].k, ElementsAre(0.5f, 0.25f));
  EXPECT_THAT(met[0].v, ElementsAre(1, 3));
  EXPECT_THAT(met[1].k, ElementsAre(3, 3));
  EXPECT_THAT(met[1].v, ElementsAre(5, 6));
}

TEST_F(KvScalesTest, OfPaddleNlpAreLargestMagnitudesInAFile) {
  const std::string attention = "llama.layers.0.self_attn.", other = "llama.layers.1.self_attn.";
  Json file = {{attention + "cachek_matmul.activation_quanter", 254},
               {attention + "cachev_matmul.activation_quanter", {127, 0, 63.5, 0}},
               {other + "cachek_matmul.activation_quanter", {127, 254}},
               {other + "cachev_matmul.activation_quanter", 12.7}};
  folder_.write("cachekv_scales.json", file.dump());
  const std::vector<KvScales> met = scales(DType::kI8);
  EXPECT_THAT(met[0].k, ElementsAre(2, 2));
  EXPECT_THAT(met[0].v, ElementsAre(1, 0.5f));
  EXPECT_THAT(met[1].k, ElementsAre(1, 2));
  EXPECT_THAT(met[1].v, ElementsAre(0.1f, 0.1f));
  file.erase(other + "cachev_matmul.activation_quanter");
  folder_.write("cachekv_scales.json", file.dump());
  EXPECT_THAT(refusal(DType::kI8), HasSubstr("layer 1 has no scale of its values"));
  file[other + "cachev_matmul.activation_quanter"] = "none";
  folder_.write("cachekv_scales.json", file.dump());
  EXPECT_THAT(refusal(DType::kI8), AllOf(HasSubstr("cachekv_scales.json"), HasSubstr("no number")));
}

TEST_F(KvScalesTest, AreCheckedByName) {
  const auto with = [&](const std::string& name, const std::vector<float>& numbers,
                        std::vector<int64_t> shape) {
    tensors_ = TestModel::llama_tensors();
    add_all(".k_scale", ".v_scale");
    std::erase_if(tensors_, [&](const FileTensor& t) { return t.name == name; });
    if (!numbers.empty()) add(name, numbers, std::move(shape));
    return refusal();
  };
  const std::string k = "model.layers.1.self_attn.k_scale";
  EXPECT_EQ(with(k, {1}, {1}), "accepted");
  EXPECT_THAT(with(k, {}, {}), HasSubstr("layer 1 has no scale of its keys"));
  EXPECT_THAT(with(k, {1, 2, 3}, {3}), AllOf(HasSubstr(k), HasSubstr("has 3 scales")));
  EXPECT_THAT(with(k, std::vector<float>(8, 1), {2, 4}),
              AllOf(HasSubstr(k), HasSubstr("for each channel are not supported")));
  for (const float bad : {0.0f, -1.0f, std::nanf(""), INFINITY, 1000.0f})
    EXPECT_THAT(with(k, {bad}, {1}), AllOf(HasSubstr(k), HasSubstr("not in the range")));
  add("model.layers.0.self_attn.cachek_matmul.activation_zero_point", {0});
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("cachek_matmul.activation_zero_point"), HasSubstr("not supported")));
  tensors_.pop_back();
  config_.quantization.kv_refusal = "bits";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("bits"), HasSubstr("--kv-cache-dtype auto")));
}

TEST_F(KvScalesTest, OnesArePlaceholders) {
  EXPECT_TRUE(are_placeholders({{.k = {1, 1}, .v = {1}}, {.k = {1}, .v = {1}}}));
  EXPECT_FALSE(are_placeholders({{.k = {1, 1}, .v = {1}}, {.k = {1}, .v = {2}}}));
}

// The cache computes with the scales: with those that fit the values it hardly changes the result,
// with far too large ones it does; and keys and values have their own.
TEST_F(KvScalesTest, AreWhatTheCacheComputesWith) {
  const KvFormat fixed{.dtype = DType::kI8, .fixed = true};
  const std::vector<float> plain = logits({.dtype = DType::kF32}, true);
  const auto distance = [&](float k, float v) {
    config_.quantization.kv_elements = DType::kI8;
    tensors_ = TestModel::llama_tensors();
    for (const char* layer : {"0", "1"}) {
      add(std::string("model.layers.") + layer + ".self_attn.k_scale", {k});
      add(std::string("model.layers.") + layer + ".self_attn.v_scale", {v});
    }
    const std::vector<float> met = logits(fixed, true);
    EXPECT_EQ(met, logits(fixed, false));  // tokens that are decoded have the same scales
    double sum = 0, size = 0;
    for (size_t i = 0; i < met.size(); ++i) {
      sum += std::pow(met[i] - plain[i], 2);
      size += std::pow(plain[i], 2);
    }
    return std::sqrt(sum / size);
  };
  constexpr float kFits = 0x1p-5f, kCoarse = 4;  // keys and values lie within +-4
  const double fine = distance(kFits, kFits);
  EXPECT_GT(fine, 0);
  EXPECT_LT(fine, 0.03);
  EXPECT_GT(distance(kCoarse, kFits), 2 * fine);
  EXPECT_GT(distance(kFits, kCoarse), 2 * fine);
}

// Each rank has the scales of its own KV heads; neighbours share a head where there are few.
TEST_F(KvScalesTest, AreCutWithTheHeads) {
  for (const char* layer : {"0", "1"}) {
    add(std::string("model.layers.") + layer + ".self_attn.k_scale", {0.5f, 0.25f}, {2});
    add(std::string("model.layers.") + layer + ".self_attn.v_scale", {2, 4}, {2});
  }
  config_.quantization.kv_elements = DType::kI8;
  write();
  const auto ops = make_reference_ops();
  for (const int size : {2, 4})
    for (int rank = 0; rank < size; ++rank) {
      LoadOptions options{.progress = {}, .part = {.rank = rank, .size = size}};
      options.precision.kv = {.dtype = DType::kI8, .fixed = true};
      const LoadedModel model = load_model(folder_.dir(), config_, options, *ops);
      const bool second = rank >= size / 2;
      for (const FixedKvScales& scales : model.kv_scales) {
        ASSERT_EQ(scales.k.elements(), 1);
        EXPECT_EQ(to_float(scales.k.as<BF16>()[0]), second ? 0.25f : 0.5f);
        EXPECT_EQ(to_float(scales.v.as<BF16>()[0]), second ? 4 : 2);
      }
    }
}

}  // namespace
}  // namespace skiff::model
