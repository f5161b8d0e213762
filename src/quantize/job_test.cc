// Whole models: every target on the tiny models of tests/golden, read back by the loader, compared
// with what the job itself measured; and what it refuses.
#include "quantize/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <skiff_test_paths.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <random>

#include "base/load_error.h"
#include "comm/communicator.h"
#include "model/golden_cases_testing.h"
#include "model/model_testing.h"
#include "model/single.h"
#include "quantize/quality.h"

namespace skiff::quantize {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// A place for output, removed at the end.
class Place {
 public:
  explicit Place(const std::string& name)
      : path_(fs::temp_directory_path() / fmt::format("skiff_quantize_{}_{}", ::getpid(), name)) {
    fs::remove_all(path_);
  }
  ~Place() { fs::remove_all(path_); }
  Place(const Place&) = delete;
  const fs::path& path() const { return path_; }
  std::string dir() const { return path_.string(); }

 private:
  fs::path path_;
};

Data random_data(int vocab, int texts, uint64_t seed) {
  std::mt19937_64 random(seed);
  Data data;
  for (int i = 0; i < texts + 4; ++i) {
    Sequence sequence;
    const auto length = 10 + random() % 30;
    for (size_t t = 0; t < length; ++t)
      sequence.tokens.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)));
    (i < texts ? data.calibration : data.heldout).push_back(std::move(sequence));
  }
  return data;
}

Request request_for(const std::string& to) {
  Request request{.to = to, .layout = "compressed-tensors", .group_size = 16, .threads = 2};
  return request;
}

Report quantize(const std::string& model, const Request& request, const fs::path& out,
                int threads = 2, uint64_t shard = uint64_t{1} << 30) {
  const ModelFile file(testing::golden_dir(model));
  const auto ops = make_cpu_ops(threads);
  return quantize_model(file, settle(request), random_data(file.spec().vocab, 24, 1),
                        {.out = out, .shard_bytes = shard, .progress = {}}, *ops);
}

// The logits of all rows, by the loader and the decoder as they are served.
std::vector<float> logits_of(const std::string& folder, const std::vector<int32_t>& tokens) {
  const auto ops = make_cpu_ops(2);
  const model::ModelConfig config = model::read_model_config(folder);
  const model::LoadedModel model = model::load_model(
      folder, config, {.precision = uniform_precision(DType::kF32), .progress = {}}, *ops);
  comm::Mesh mesh = comm::make_solo_mesh();
  const auto length = static_cast<int>(tokens.size());
  model::SingleSequence sequence(model, *ops, mesh, DType::kF32, length, length);
  const Tensor logits = sequence.forward(tokens);
  return {logits.as<float>(), logits.as<float>() + logits.elements()};
}

Quality served_quality(const std::string& before, const std::string& after, const Data& data) {
  QualityMeter meter;
  for (const Sequence& s : data.heldout) {
    const auto p = logits_of(before, s.tokens), q = logits_of(after, s.tokens);
    const int64_t vocab = std::ssize(p) / std::ssize(s.tokens);
    for (size_t t = 0; t + 1 < s.tokens.size(); ++t)
      meter.add(p.data() + static_cast<int64_t>(t) * vocab,
                q.data() + static_cast<int64_t>(t) * vocab, vocab, s.tokens[t + 1]);
  }
  return meter.result();
}

struct Case {
  std::string model, to;
  bool symmetric = true;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string model :
       {"llama", "ernie45_moe", "qwen3_moe", "qwen2", "deepseek_v3", "deepseek_v2_greedy"})
    for (const Target& target : targets())
      all.push_back({model, std::string(target.name), !target.has_zeros});
  all.push_back({"ernie45_bias", "awq", false});
  all.push_back({"mixtral", "gptq", false});
  all.push_back({"llama_bf16_sharded", "a8w8", true});
  all.push_back({"ernie45_moe_bf16_f32gate", "awq", true});
  return all;
}

class Jobs : public ::testing::TestWithParam<Case> {};

// Weights alone: the job's own passes and the served model are the same computation in float32, in
// other orders of summing, so divergences agree to a few parts in a thousand; a wrong layout, scale
// or fold moves them by their whole size. Where activations are rounded, the served model may
// round them as the format says or, with widened weights, not at all; it is at most a little worse.
TEST_P(Jobs, TheServedModelIsTheOneThatWasMeasured) {
  const Case& c = GetParam();
  const Place place(fmt::format("{}_{}_{}", c.model, c.to, c.symmetric));
  Request request = request_for(c.to);
  request.symmetric = c.symmetric;
  const Report report = quantize(c.model, request, place.path());
  ASSERT_TRUE(report.quality);
  EXPECT_GT(report.units, 0);
  const Data data = random_data(112, 24, 1);
  const Quality served = served_quality(testing::golden_dir(c.model), place.dir(), data);
  EXPECT_EQ(served.tokens, report.quality->tokens);
  const bool weights_alone = !settle(request).format.input;
  if (weights_alone)
    EXPECT_NEAR(served.kl, report.quality->kl, 0.01 * report.quality->kl + 1e-6);
  else
    EXPECT_LE(served.kl, 1.5 * report.quality->kl);
  EXPECT_NEAR(served.perplexity_before, report.quality->perplexity_before,
              1e-3 * served.perplexity_before);
  EXPECT_GT(served.kl, 0);
}

INSTANTIATE_TEST_SUITE_P(All, Jobs, ::testing::ValuesIn(cases()), [](const auto& info) {
  std::string name =
      info.param.model + "_" + info.param.to + (info.param.symmetric ? "" : "_zeros");
  std::ranges::replace(name, '-', '_');
  return name;
});

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Job, ThreadsDoNotMatter) {
  const Place one("one"), other("other");
  Request request = request_for("gptq");
  request.threads = 1;
  quantize("ernie45_moe", request, one.path(), 1);
  request.threads = 5;
  quantize("ernie45_moe", request, other.path(), 3);
  EXPECT_EQ(bytes_of(one.path() / "model.safetensors"),
            bytes_of(other.path() / "model.safetensors"));
}

TEST(Job, CalibrationBeatsRoundingToNearest) {
  const Place nearest("nearest"), gptq("gptq");
  Request request = request_for("w4a16");
  request.clip = false;
  const double plain = quantize("llama", request, nearest.path()).quality->kl;
  EXPECT_LT(quantize("llama", request_for("gptq"), gptq.path()).quality->kl, 0.8 * plain);
}

TEST(Job, WritesShardsWithAnIndex) {
  const Place place("shards");
  quantize("llama", request_for("w8a16"), place.path(), 2, 20'000);
  const Json index = read_json_file((place.path() / "model.safetensors.index.json").string());
  EXPECT_TRUE(index.at("weight_map").contains("model.layers.0.mlp.up_proj.weight_packed"));
  EXPECT_TRUE(fs::exists(place.path() / index.at("weight_map").at("model.norm.weight")));
  EXPECT_FALSE(fs::exists(place.path() / "model.safetensors"));
}

TEST(Job, TheOtherLayoutsServeTheSame) {
  struct Row {
    std::string model, to, layout;
  };
  for (const auto& [model, to, layout] : {Row{"llama", "gptq", "gptq"},
                                          {"llama", "awq", "awq"},
                                          {"llama", "w4a16", "gptq"},
                                          {"deepseek_v3_large_latent", "gptq", "gptq"},
                                          {"deepseek_v3_large_latent", "awq", "awq"}}) {
    const Place place(fmt::format("layout_{}_{}_{}", model, to, layout));
    Request request = request_for(to);
    request.layout = layout;
    request.group_size = -1;
    if (model != "llama") request.ignore = {"re:.*experts"};  // 20 wide, no multiple of 8
    const Report report = quantize(model, request, place.path());
    const Quality served =
        served_quality(testing::golden_dir(model), place.dir(), random_data(112, 24, 1));
    EXPECT_NEAR(served.kl, report.quality->kl, 0.01 * report.quality->kl) << model << " " << to;
  }
}

// Scales of activations are static here, so the served model rounds what the job rounded: the two
// differ where sums of other orders put an input on the other side of a tie.
TEST(Job, PaddleNlpsLayoutServesTheSame) {
  for (const std::string model : {"llama", "qwen2", "qwen2_tied_bf16"}) {
    const Place place("paddlenlp_" + model);
    Request request = request_for("a8w8");
    request.layout = "paddlenlp";
    request.kv = DType::kI8;
    const Report report = quantize(model, request, place.path());
    const Quality served =
        served_quality(testing::golden_dir(model), place.dir(), random_data(112, 24, 1));
    EXPECT_GT(served.kl, 0);
    EXPECT_NEAR(served.kl, report.quality->kl, 0.05 * report.quality->kl) << model;
    const Checkpoint checkpoint(place.dir());
    const std::string base = model == "llama" ? "llama." : "qwen2.";
    EXPECT_TRUE(checkpoint.find(base + "layers.0.self_attn.q_proj.weight")) << model;
    const Json cache = read_json_file((place.path() / "cachekv_scales.json").string());
    EXPECT_EQ(
        cache.at(base + "layers.0.self_attn.cachev_matmul.activation_quanter").size(),
        static_cast<size_t>(
            std::get<Gqa>(ModelFile(testing::golden_dir(model)).spec().layers[0].mixer).heads));
  }
}

// Products of gate and up have long tails, of which a static scale leaves some out.
TEST(Job, StaticScalesAreClipped) {
  std::vector<double> covers;
  for (const bool clip : {true, false}) {
    const Place place(fmt::format("static_{}", clip));
    Request request = request_for("a8w8");
    request.layout = "paddlenlp";
    request.clip = clip;
    quantize("llama", request, place.path());
    const Json inputs = read_json_file((place.path() / "act_scales.json").string());
    covers.push_back(inputs.at("llama.layers.0.mlp.down_proj.activation_quanter").get<double>());
  }
  EXPECT_LT(covers[0], 0.9 * covers[1]);
}

// Llama has no biases of its own; the switch in config.json makes readers look for them.
TEST(Job, ShiftedValuesAreServed) {
  for (const std::string model : {"llama", "qwen3", "ernie45_bias"}) {
    const Place place("shift_" + model);
    Request request = request_for("a8w8");
    request.shift = true;
    const Report report = quantize(model, request, place.path());
    EXPECT_GT(report.shifts, 0) << model;
    const Quality served =
        served_quality(testing::golden_dir(model), place.dir(), random_data(112, 24, 1));
    EXPECT_LE(served.kl, 1.5 * report.quality->kl) << model;
    EXPECT_GT(served.kl, 0) << model;
    const Checkpoint checkpoint(place.dir());
    for (const char* bias : {"q_proj", "v_proj", "o_proj"})
      EXPECT_TRUE(checkpoint.find(fmt::format("model.layers.1.self_attn.{}.bias", bias))) << model;
  }
}

// Qwen3-Embedding's files; without that of the Pooling module the new folder could not be read.
TEST(Job, AnEncoderKeepsTheFileOfItsPooling) {
  const Place encoder("encoder"), place("encoder_out");
  fs::copy(testing::golden_dir("qwen3"), encoder.path(), fs::copy_options::recursive);
  fs::create_directory(encoder.path() / "1_Pooling");
  std::ofstream(encoder.path() / "1_Pooling/config.json") << R"({"pooling_mode_cls_token": true})";
  std::ofstream(encoder.path() / "modules.json") << R"([
      {"path": "", "type": "sentence_transformers.models.Transformer"},
      {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
      {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])";
  const ModelFile file(encoder.dir());
  const auto ops = make_cpu_ops(1);
  quantize_model(file, settle(request_for("w8a16")), Data{}, {.out = place.path(), .progress = {}},
                 *ops);
  const auto pooling = model::read_model_config(place.dir()).pooling;
  ASSERT_TRUE(pooling);
  EXPECT_EQ(pooling->rows, model::PoolRows::kFirst);
}

TEST(Job, StoresScalesOfTheCache) {
  const Place place("kv");
  Request request = request_for("w8a16");
  request.kv = DType::kF8E4M3;
  quantize("llama", request, place.path());
  const Checkpoint checkpoint(place.dir());
  for (const char* which : {"k_scale", "v_scale"}) {
    const auto* tensor = checkpoint.find(fmt::format("model.layers.1.self_attn.{}", which));
    ASSERT_TRUE(tensor) << which;
    const float scale = read_floats(*tensor).at(0);
    EXPECT_TRUE(scale > 0 && scale < 1) << scale;
  }
  const Json config = read_json_file((place.path() / "config.json").string());
  EXPECT_EQ(config.at("quantization_config").at("kv_cache_scheme").at("type"), "float");
}

TEST(Job, IgnoredLayersStayAsTheyWere) {
  const Place place("ignore");
  Request request = request_for("gptq");
  request.ignore = {"model.layers.0", "re:.*down_proj"};
  quantize("llama", request, place.path());
  const Checkpoint before(testing::golden_dir("llama")), after(place.dir());
  for (const char* name : {"model.layers.0.self_attn.q_proj.weight",
                           "model.layers.2.mlp.down_proj.weight", "model.norm.weight"}) {
    ASSERT_TRUE(after.find(name)) << name;
    EXPECT_TRUE(std::ranges::equal(before.find(name)->bytes, after.find(name)->bytes)) << name;
  }
  EXPECT_FALSE(after.find("model.layers.1.self_attn.q_proj.weight"));
}

// Readers such as transformers take every linear layer that is not named for a rounded one.
TEST(Job, EveryPlainMatrixOutsideOfTheLayersIsNamed) {
  const Place place("outside");
  const testing::TestModel judge("LlamaForSequenceClassification", {{"num_labels", 2}});
  std::vector<testing::FileTensor> tensors = testing::TestModel::llama_tensors();
  const std::string numbers = testing::f32_bytes(std::vector<float>(32, 0.5f));
  for (testing::FileTensor& tensor : tensors)
    if (tensor.name == "lm_head.weight") tensor = {"score.weight", "F32", {2, 16}, numbers};
  tensors.push_back({"model.mtp_linear_proj.0.weight", "F32", {1, 32}, numbers});
  judge.write("model.safetensors", testing::safetensors_bytes(tensors));
  const ModelFile file(judge.dir());
  const auto ops = make_cpu_ops(1);
  quantize_model(file, settle(request_for("w8a16")), Data{}, {.out = place.path(), .progress = {}},
                 *ops);
  const Json config = read_json_file((place.path() / "config.json").string());
  EXPECT_THAT(config.at("quantization_config").at("ignore").get<std::vector<std::string>>(),
              UnorderedElementsAre("lm_head", "score", "model.mtp_linear_proj.0"));
}

// Multiplies floats of a tensor of float32 in a safetensors file.
void enlarge(const fs::path& path, const std::string& tensor, int64_t first, int64_t count) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string header(length, ' ');
  file.read(header.data(), static_cast<std::streamsize>(length));
  const auto begin = parse_json(header)->at(tensor).at("data_offsets").at(0).get<uint64_t>();
  const auto at = static_cast<std::streamoff>(sizeof length + length + begin) + first * 4;
  std::vector<float> values(static_cast<size_t>(count));
  file.seekg(at);
  file.read(reinterpret_cast<char*>(values.data()), count * 4);
  for (float& x : values) x *= 50;
  file.seekp(at);
  file.write(reinterpret_cast<const char*>(values.data()), count * 4);
}

// Factors of the inputs of o_proj and q_b_proj end in kv_b_proj, which is not rounded, and in the
// norm between q_a_proj and q_b_proj. deepseek_v3: 4 heads with 12 rows of keys and 10 of values,
// the first of which is made so large that there is something to fold.
TEST(Job, LatentAttentionTakesUpFactorsInItsPlainParts) {
  constexpr int64_t kHeads = 4, kNope = 12, kEach = 22, kRank = 20;
  const std::string attention = "model.layers.1.self_attn.";
  const Place model("latent_model"), place("latent");
  fs::copy(testing::golden_dir("deepseek_v3"), model.path(), fs::copy_options::recursive);
  enlarge(model.path() / "model.safetensors", attention + "kv_b_proj.weight", kNope * kRank, kRank);
  const ModelFile file(model.dir());
  const auto ops = make_cpu_ops(2);
  quantize_model(file, settle(request_for("a8w8")), random_data(112, 24, 1),
                 {.out = place.path(), .progress = {}}, *ops);
  const Checkpoint before(model.dir()), after(place.dir());
  const auto old = read_floats(*before.find(attention + "kv_b_proj.weight"));
  const auto now = read_floats(*after.find(attention + "kv_b_proj.weight"));
  ASSERT_EQ(now.size(), static_cast<size_t>(kHeads * kEach * kRank));
  int changed = 0;
  for (int64_t row = 0; row < kHeads * kEach; ++row) {
    const auto at = static_cast<size_t>(row * kRank);
    const float factor = old[at] / now[at];
    EXPECT_EQ(std::exp2(std::round(std::log2(factor))), factor) << row;
    EXPECT_TRUE(factor == 1 || row % kEach >= kNope) << row;
    if (factor != 1) ++changed;
    for (size_t c = 0; c < kRank; ++c) EXPECT_EQ(now[at + c] * factor, old[at + c]) << row;
  }
  EXPECT_GT(changed, 0);
  EXPECT_NE(read_floats(*before.find(attention + "q_a_layernorm.weight")),
            read_floats(*after.find(attention + "q_a_layernorm.weight")));
  for (const char* rounded : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"})
    EXPECT_TRUE(after.find(fmt::format("{}{}.weight_scale", attention, rounded))) << rounded;
  const Json config = read_json_file((place.path() / "config.json").string());
  EXPECT_THAT(config.at("quantization_config").at("ignore").get<std::vector<std::string>>(),
              Contains(attention + "kv_b_proj"));
}

TEST(Job, ExpertsWithoutTokensAreFiniteAndCounted) {
  const Place place("experts");
  const ModelFile file(testing::golden_dir("qwen3_moe"));
  Data data;
  data.calibration = {{.tokens = {5, 9}}};  // two tokens reach few of the experts
  const auto ops = make_cpu_ops(2);
  for (const char* to : {"gptq", "awq"}) {
    const Place out(std::string("experts_") + to);
    const Report report = quantize_model(file, settle(request_for(to)), data,
                                         {.out = out.path(), .progress = {}}, *ops);
    EXPECT_GT(report.few_tokens, 0);
    EXPECT_FALSE(report.quality);
    for (const float x : logits_of(out.dir(), {1, 2, 3})) EXPECT_TRUE(std::isfinite(x));
  }
}

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const LoadError& e) {
    return e.what();
  }
  return "";
}

TEST(Job, RefusesWithTheNameOfWhatIsWrong) {
  const Place place("refused");
  const auto run = [&](const std::string& model, const Request& request) {
    return refusal([&] { quantize(model, request, place.path()); });
  };
  Request request = request_for("gptq");
  request.layout = "gptq";
  request.group_size = 32;
  EXPECT_THAT(run("llama", request), HasSubstr("model.layers.0.mlp.down_proj has 56 inputs"));
  EXPECT_FALSE(fs::exists(place.path()));
  request = request_for("a8w8");
  request.ignore = {"re:.*q_proj"};
  EXPECT_THAT(run("llama", request), HasSubstr("qkv of layer 0"));
  request.ignore = {"model"};
  EXPECT_THAT(run("llama", request), HasSubstr("leaves no layer"));
  request = request_for("w8a16");
  request.kv = DType::kF8E4M3;
  EXPECT_THAT(run("deepseek_v3", request), HasSubstr("--kv-cache-dtype"));
  request = request_for("a8w8");
  request.shift = true;
  EXPECT_THAT(run("qwen2", request), HasSubstr("--shift: the attention of Qwen2ForCausalLM"));
  EXPECT_THAT(run("deepseek_v3", request), HasSubstr("--shift: the attention of DeepseekV3"));
  request = request_for("a8w8");
  request.layout = "paddlenlp";
  EXPECT_THAT(run("ernie45_moe", request), HasSubstr("this is Ernie4_5_MoeForCausalLM"));
  EXPECT_THAT(run("llama_linear_bias", request), HasSubstr("no such biases"));
  EXPECT_THAT(run("ernie45_paddle", request_for("fp8")), HasSubstr("Paddle"));
  EXPECT_THAT(refusal([&] { ModelFile(std::string(SKIFF_SOURCE_DIR) + "/tests/quantized/awq"); }),
              HasSubstr("quantized already"));
  quantize("llama", request_for("fp8"), place.path());
  EXPECT_THAT(run("llama", request_for("fp8")), HasSubstr("exists already"));
  EXPECT_THAT(refusal([&] { ModelFile(place.dir()); }), HasSubstr("quantized already"));
}

// A mount point cannot be replaced either, but only root can make one.
TEST(Job, APlaceThatCannotBeReplacedIsRefusedBeforeTheWork) {
  const Place parent("links");
  fs::create_directories(parent.path() / "real");
  fs::create_directory_symlink("real", parent.path() / "link");
  EXPECT_THAT(refusal([&] { check_place(parent.path() / "link"); }), HasSubstr("--out"));
  const ModelFile file(testing::golden_dir("llama"));
  const auto ops = make_cpu_ops(1);
  int layers = 0;
  EXPECT_THAT(refusal([&] {
                quantize_model(file, settle(request_for("fp8")), Data{},
                               {.out = parent.path() / "link",
                                .progress = [&](uint64_t, uint64_t) { ++layers; }},
                               *ops);
              }),
              HasSubstr("--out"));
  EXPECT_EQ(layers, 0);
  check_place(parent.path() / "real");
  EXPECT_TRUE(fs::is_empty(parent.path() / "real"));
  EXPECT_EQ(std::distance(fs::directory_iterator(parent.path()), {}), 2);
}

TEST(Job, LeavesNothingWhereItFails) {
  const Place parent("parent");
  fs::create_directories(parent.path());
  const ModelFile file(testing::golden_dir("llama"));
  const auto ops = make_cpu_ops(1);
  Data data;
  data.calibration = {{.tokens = {1, 2, 3}}};
  const Progress stop = [](uint64_t done, uint64_t) {
    if (done == 2) fail_load("stopped");
  };
  EXPECT_EQ(refusal([&] {
              quantize_model(file, settle(request_for("gptq")), data,
                             {.out = parent.path() / "out", .progress = stop}, *ops);
            }),
            "stopped");
  EXPECT_TRUE(fs::is_empty(parent.path()));
}

}  // namespace
}  // namespace skiff::quantize
