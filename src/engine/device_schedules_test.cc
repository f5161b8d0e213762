// Random schedules on CUDA devices that are batch-invariant, one, two or four: each request's
// tokens and log-probabilities must be bit for bit those that it gets alone, however its prompt is
// cut, whichever requests share the step, whatever is preempted, found in the cache or padded, and
// whatever is drafted.
// Contexts are longer than a piece of attention, and steps have more rows than a small GEMM.
#include "base/load_error.h"
#include "engine/drafter_source.h"
#include "engine/schedules_testing.h"

namespace skiff::engine {
namespace {

constexpr Lengths kLengths = {.requests = 10, .shared = 300, .own = 300, .output = 20};
constexpr int kContext = 640;

constexpr const char* kDense = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "vocab_size": 1004, "head_dim": 128,
  "intermediate_size": 3336, "num_hidden_layers": 2, "num_attention_heads": 6,
  "num_key_value_heads": 2, "max_position_embeddings": 1024, "torch_dtype": "bfloat16"})";

constexpr const char* kDenseOfFour = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "vocab_size": 1004, "head_dim": 128,
  "intermediate_size": 3336, "num_hidden_layers": 2, "num_attention_heads": 8,
  "num_key_value_heads": 2, "max_position_embeddings": 1024, "torch_dtype": "bfloat16"})";

constexpr const char* kMixture = R"({
  "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "hidden_act": "silu",
  "hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 1024,
  "moe_intermediate_size": 192, "moe_k": 3, "moe_layer_start_index": 1, "moe_layer_end_index": 2,
  "moe_layer_interval": 1, "moe_norm_min": 1e-12, "moe_num_experts": 16,
  "moe_num_shared_experts": 2, "num_attention_heads": 4, "num_hidden_layers": 3,
  "num_key_value_heads": 1, "rms_norm_eps": 1e-05, "rope_theta": 5000.0, "use_bias": false,
  "tie_word_embeddings": false, "vocab_size": 1004, "torch_dtype": "bfloat16"})";

constexpr const char* kDrafter = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "vocab_size": 1004, "head_dim": 128,
  "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4,
  "num_key_value_heads": 1, "max_position_embeddings": 1024, "torch_dtype": "bfloat16"})";

// What drafts for a model in `served`: on each of its devices a part of one drafter.
std::vector<model::LoadedModel> drafters_on(Model& model, const std::string& served) {
  const DummyFolder folder("device_schedules_drafter", kDrafter);
  const Precision precision = uniform_precision(DType::kBF16);
  const auto size = static_cast<int>(1 + model.others.size());
  DrafterSource source = *find_drafter({.method = "draft_model", .model = folder.path()}, served,
                                       model::read_model_config(served), precision, size);
  std::vector<model::LoadedModel> drafters;
  for (int rank = 0; rank < size; ++rank) {
    take_part(source, rank);
    Ops& ops = *model.rank(static_cast<size_t>(rank)).ops;
    ops.bind_thread();
    drafters.push_back(model::load_model(source.folder, source.config,
                                         {.precision = precision,
                                          .format = model::LoadFormat::kDummy,
                                          .dummy_seed = 9,
                                          .part = source.part},
                                         ops));
  }
  return drafters;
}

Setup setup_alone() {
  return {
      .num_blocks = kContext / 16 + 1,
      .limits = {.max_seqs = 1, .max_rows = 256, .max_context = kContext, .max_logit_rows = 256},
      .own_thread = false};
}

int pick_of(std::mt19937_64& rng, int low, int high) {
  return low + static_cast<int>(rng() % static_cast<uint64_t>(high - low + 1));
}

// Pages of other sizes than powers of two have attention of their own.
Setup random_device_setup(std::mt19937_64& rng) {
  const auto pick = [&](int low, int high) { return pick_of(rng, low, high); };
  Setup s;
  s.block_size = 16 << pick(0, 2);
  s.num_blocks = pick(kContext, 3 * kContext / 2) / s.block_size + 1;
  s.limits.max_seqs = pick(2, 12);
  s.limits.max_rows = pick(s.limits.max_seqs, rng() % 2 ? 40 : 700);
  s.limits.max_context = kContext;
  s.limits.max_logit_rows = s.limits.max_seqs + pick(0, 30);
  s.limits.chunked_prefill = rng() % 4 != 0;
  s.limits.policy.long_prompt = pick(4, 400);
  s.limits.policy.long_chunk = pick(0, 200);
  s.limits.policy.max_partial = pick(0, 2);
  s.limits.policy.reserve = pick(0, 4);
  s.depth = static_cast<size_t>(pick(1, 2));
  if (rng() % 2) s.captures.sizes = {(s.limits.max_seqs + 1) / 2, s.limits.max_seqs};
  if (rng() % 2) s.captures.drafts = pick(1, 3);
  s.own_thread = false;
  s.share = rng() % 4 != 0;
  if (s.share && rng() % 2 == 0) s.tiers.host_blocks = pick(1, 3 * kContext / s.block_size);
  s.tiers.always_pays = rng() % 2;  // else measured times decide
  if (rng() % 2) s.limits.policy.max_loads = pick(1, 4);
  return s;
}

// The model on so many devices. Throws LoadError where there are fewer. Shared experts of packed
// weights are computed apart, in a lane of their own.
std::unique_ptr<Model> model_on_devices(const std::string& folder, int ranks,
                                        std::string_view quantization) {
  const auto rank = [&](int index) {
    // A recording is bound to the memory of one executor, and each schedule has its own.
    return std::make_unique<Model>(
        folder, model::LoadFormat::kDummy, DType::kBF16,
        make_cuda_ops({.device = index, .graphs = false, .batch_invariant = true}), std::nullopt,
        model::RankOf{.rank = index, .size = ranks},
        quantization.empty() ? Moe::kSlices : Moe::kWhole, quantization);
  };
  auto first = rank(0);
  for (int index = 1; index < ranks; ++index) first->others.push_back(rank(index));
  if (ranks == 1) return first;
  // Steps of a dozen rows and more are added up by owners of rows, others by all ranks.
  constexpr int64_t kOwnersFrom = 6 << 10;
  first->group = std::make_unique<devices::DeviceGroup>(0, ranks, kOwnersFrom);
  first->group->begin_service();
  return first;
}

// Each set of requests runs in several schedules.
void check_device_schedules(const char* name, const char* config, int sets, int ranks = 1,
                            std::string_view quantization = {}) {
  constexpr int kSchedules = 4;
  const DummyFolder folder(name, config);
  std::unique_ptr<Model> on_devices;
  try {
    on_devices = model_on_devices(folder.path(), ranks, quantization);
  } catch (const LoadError& e) {
    GTEST_SKIP() << "no " << ranks << " batch-invariant devices: " << e.what();
  }
  Model& model = *on_devices;
  const std::vector<model::LoadedModel> drafters = drafters_on(model, folder.path());
  Totals totals, drafted;
  std::set<Token> said;
  for (int seed = 0; seed < sets; ++seed) {
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const store::TempDir storage;
    const auto requests = random_requests(rng, model.weights.spec.vocab, kLengths);
    const Texts alone = texts_alone(model, requests, rng, storage, setup_alone());
    for (const auto& [id, heard] : alone) said.insert(heard.tokens.begin(), heard.tokens.end());
    for (int schedule = 0; schedule < kSchedules; ++schedule) {
      SCOPED_TRACE(testing::Message() << name << " seed " << seed << " schedule " << schedule);
      Setup setup = random_device_setup(rng);
      const bool has_drafter = schedule == 0, drafts = !has_drafter && rng() % 2;
      if (has_drafter) {
        setup.drafter = &drafters.front();
        for (size_t rank = 1; rank < drafters.size(); ++rank)
          setup.other_drafters.push_back(&drafters[rank]);
      }
      setup.draft_tokens = pick_of(rng, 1, 3);
      Listener listener;
      run(model, setup, shuffled_commands(requests, 0, rng), rng, drafts ? &alone : nullptr,
          storage, listener, has_drafter ? drafted : totals);
      ASSERT_NO_FATAL_FAILURE(expect_same(listener, alone));
    }
  }
  std::printf("%d schedules\n", sets * kSchedules);
  print(name, totals, said.size());
  EXPECT_GT(totals.preemptions, 0u);
  EXPECT_GT(totals.evictions, 0u);
  EXPECT_GT(totals.cached, 0u);
  EXPECT_GT(totals.from_host, 0u);
  EXPECT_GT(totals.kept, 0);
  EXPECT_GT(totals.drafted, totals.kept);
  print("with a model that drafts", drafted, 0);
  EXPECT_GT(drafted.drafted, 0);
  EXPECT_GT(said.size(), 20u) << "the text must depend on the context";
}

TEST(DeviceSchedules, Dense) { check_device_schedules("device_schedules_dense", kDense, 125); }

TEST(DeviceSchedules, Mixture) {
  check_device_schedules("device_schedules_mixture", kMixture, 125);
}

TEST(DeviceSchedules, PackedMixture) {
  check_device_schedules("device_schedules_packed", kMixture, 60, 1, "wint4");
}

TEST(DeviceSchedules, DenseOnTwoDevices) {
  check_device_schedules("device_schedules_dense_2", kDense, 60, 2);
}

TEST(DeviceSchedules, MixtureOnTwoDevices) {
  check_device_schedules("device_schedules_mixture_2", kMixture, 60, 2);
}

// Neighbouring ranks have the same keys and values.
TEST(DeviceSchedules, DenseOnFourDevices) {
  check_device_schedules("device_schedules_dense_4", kDenseOfFour, 30, 4);
}

TEST(DeviceSchedules, MixtureOnFourDevices) {
  check_device_schedules("device_schedules_mixture_4", kMixture, 30, 4);
}

}  // namespace
}  // namespace skiff::engine
