// Weights that are kept as their checkpoint has them: they are the numbers that widening gives, bit
// for bit, in the memory that the plan says, and the model computes the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <skiff_test_paths.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "arch/shard.h"
#include "base/load_error.h"
#include "model/code_buffer.h"
#include "model/memory_plan.h"
#include "model/model_testing.h"
#include "model/registry.h"
#include "model/single.h"
#include "model/sources.h"
#include "model/stored_forms.h"
#include "model/values.h"
#include "ops/reference/reference_ops.h"
#include "ops/reference/weights.h"

namespace skiff::model {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::FileTensor;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TestModel;

std::vector<std::string> checkpoints() {
  std::vector<std::string> all;
  for (const auto& entry :
       fs::directory_iterator(std::string(SKIFF_SOURCE_DIR) + "/tests/quantized")) {
    const fs::path gguf = entry.path() / "model.gguf";
    all.push_back(fs::exists(gguf) ? gguf.string() : entry.path().string());
  }
  std::ranges::sort(all);
  return all;
}

std::string short_name(const std::string& path) {
  const fs::path p(path);
  return (p.extension() == ".gguf" ? p.parent_path() : p).filename().string();
}

// A backend that multiplies plain weights only.
class FloatsOnly final : public reference::ReferenceOps {
 public:
  bool multiplies(const WeightFormat& format) const override { return !format.quantized(); }
};

LoadedModel load(const std::string& path, Ops& ops, DType dtype = DType::kF32,
                 const LoadOptions& how = {.progress = {}}) {
  LoadOptions options = how;
  options.precision = uniform_precision(dtype);
  return load_model(path, read_model_config(path), options, ops);
}

std::vector<float> logits(const LoadedModel& model, Ops& ops) {
  comm::Mesh mesh = comm::make_solo_mesh();
  SingleSequence sequence(model, ops, mesh, DType::kF32, 16, 16);
  std::vector<int32_t> prompt(16);
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>((i * 7 + 3) % static_cast<size_t>(model.spec.vocab));
  const Tensor out = sequence.forward(prompt);
  return {out.as<float>(), out.as<float>() + out.elements()};
}

// The memory of one slot in plain order, with all parts.
struct Whole {
  Linear linear;
  std::vector<std::byte> codes, scales, zeros;

  Whole(const Slot& slot, const WeightFormat& format)
      : codes(byte_size(format.dtype, slot.elements())) {
    const int64_t experts = std::max<int64_t>(1, slot.experts);
    const int64_t rows = experts * num_blocks(slot.out, format.block_out);
    const int64_t cols = num_blocks(slot.in, format.block_in);
    scales.resize(byte_size(*format.scale, rows * cols));
    linear.format = format;
    linear.weight = host_tensor(codes.data(), format.dtype, {experts * slot.out, slot.in});
    linear.scale = host_tensor(scales.data(), *format.scale, {rows, cols});
    if (!format.zero) return;
    zeros.resize(byte_size(*format.zero, rows * cols));
    linear.zero = host_tensor(zeros.data(), *format.zero, {rows, cols});
  }
  // Rows of one expert.
  Linear rows(int64_t first, int64_t count, int64_t out) const {
    const int64_t tall = linear.format.block_out ? linear.format.block_out : out;
    const int64_t per = num_blocks(out, linear.format.block_out);
    const int64_t block = first / out * per + first % out / tall;
    const int64_t blocks = (count + tall - 1) / tall;
    Linear part{.format = linear.format};
    part.weight = linear.weight.row_range(first, count);
    part.scale = linear.scale.row_range(block, blocks);
    if (linear.zero) part.zero = linear.zero.row_range(block, blocks);
    return part;
  }
};

// What a rank of a group reads.
struct RankSlots {
  RankSlots(const std::string& path, const ModelConfig& config, const RankOf& at)
      : spec(*shard(config.spec, at.rank, at.size)),
        slots(slots_of(spec, at.size)),
        cuts(cut_slots(config.spec, slots, at)),
        values(stored_values(path, config, slots, DType::kF32, cuts)) {}
  int64_t width(size_t i) const { return static_cast<int64_t>(skiff::bytes(values->dtype(i))); }
  std::vector<std::byte> all(size_t i) const {
    std::vector<std::byte> bytes(static_cast<size_t>(slots[i].elements() * width(i)));
    values->fill(i, 0, slots[i].elements() / slots[i].in, bytes.data());
    return bytes;
  }
  ModelSpec spec;
  std::vector<Slot> slots;
  std::vector<SlotCut> cuts;
  std::unique_ptr<Values> values;
};

// The configuration, and for mixtures another one whose routed experts ranks have whole.
std::vector<ModelConfig> ways_to_cut(const std::string& path) {
  std::vector<ModelConfig> ways = {read_model_config(path)};
  ModelConfig whole = ways[0];
  deal_experts_whole(whole.spec);
  if (deals_experts_whole(whole.spec)) ways.push_back(std::move(whole));
  return ways;
}

constexpr RankOf kRanks[] = {{0, 1}, {0, 2}, {1, 2}, {0, 4}, {1, 4}, {2, 4}, {3, 4}};

class NativeWeights : public ::testing::TestWithParam<std::string> {};

void expect_parts_are_the_numbers_of_the_whole(const std::string& path, const ModelConfig& config) {
  const RankSlots whole(path, config, {});
  for (const RankOf& at : kRanks) {
    const RankSlots part(path, config, at);
    for (size_t i = 0; i < part.slots.size(); ++i) {
      if (is_tied_head(part.slots[i], part.spec)) continue;
      const int64_t width = whole.width(i);
      ASSERT_EQ(part.width(i), width);
      const int64_t cols = part.slots[i].in * width, pitch = whole.slots[i].in * width,
                    col = part.cuts[i].col * width;
      const std::vector<std::byte> all = whole.all(i), mine = part.all(i);
      int64_t row = 0;
      for (const auto& [first, count] : part.cuts[i].rows)
        for (int64_t r = first; r < first + count; ++r, ++row)
          ASSERT_TRUE(std::equal(mine.begin() + row * cols, mine.begin() + (row + 1) * cols,
                                 all.begin() + r * pitch + col))
              << describe_slot(part.slots[i]) << " row " << row << " of rank " << at.rank << " of "
              << at.size;
      EXPECT_EQ(row * cols, std::ssize(mine));
    }
  }
}

// A rank's part of a weight has the numbers that it has in the whole.
TEST_P(NativeWeights, PartsAreTheNumbersOfTheWhole) {
  for (const ModelConfig& config : ways_to_cut(GetParam()))
    ASSERT_NO_FATAL_FAILURE(expect_parts_are_the_numbers_of_the_whole(GetParam(), config));
}

void expect_codes_are_values(const RankSlots& rank) {
  const auto& [spec, slots, cuts, values] = rank;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    const StoredForm form = values->form(i);
    if (!form.format.quantized()) continue;
    const Whole whole(slot, form.format);
    const int64_t tall = form.format.block_out ? form.format.block_out : slot.out;
    const int64_t step = tall == 1 ? 3 : tall;
    for (int64_t begin = 0; begin < slot.elements() / slot.in; begin += slot.out)
      for (int64_t r = 0; r < slot.out; r += step) {
        const int64_t rows = std::min(step, slot.out - r);
        values->fill_codes(i, begin + r, whole.rows(begin + r, rows, slot.out));
      }
    std::vector<float> widened(static_cast<size_t>(slot.elements()));
    values->fill(i, 0, slot.elements() / slot.in, reinterpret_cast<std::byte*>(widened.data()));
    std::vector<int32_t> order = values->order(i);
    EXPECT_EQ(!order.empty(), form.order);
    if (order.empty()) {
      order.resize(static_cast<size_t>(slot.in));
      std::iota(order.begin(), order.end(), 0);
    }
    for (int64_t row = 0; row < slot.elements() / slot.in; ++row) {
      const Linear matrix = whole.rows(row / slot.out * slot.out, slot.out, slot.out);
      const std::vector<float> kept = reference::weight_row(matrix, row % slot.out);
      for (int64_t c = 0; c < slot.in; ++c) {
        const int64_t at = row * slot.in + order[static_cast<size_t>(c)];
        ASSERT_EQ(kept[static_cast<size_t>(c)], widened[static_cast<size_t>(at)])
            << describe_slot(slot) << " [" << row << ", " << c << "]";
      }
    }
  }
}

// The definition of a format applied to what is kept gives the floats that widening gives. Bands of
// three rows (or of a block's) show that it does not matter how they are read.
TEST_P(NativeWeights, AreTheNumbersThatWideningGivesBitForBit) {
  for (const ModelConfig& config : ways_to_cut(GetParam()))
    for (const RankOf& at : kRanks) {
      SCOPED_TRACE(fmt::format("rank {} of {}", at.rank, at.size));
      ASSERT_NO_FATAL_FAILURE(expect_codes_are_values(RankSlots(GetParam(), config, at)));
    }
}

// No block of an expert's scales is cut where experts are whole, so all keep the format that they
// are stored in.
TEST_P(NativeWeights, WholeExpertsKeepTheirFormat) {
  const ModelConfig config = ways_to_cut(GetParam()).back();
  if (!deals_experts_whole(config.spec)) GTEST_SKIP() << "no mixture";
  const RankSlots whole(GetParam(), config, {});
  for (const RankOf& at : kRanks) {
    const RankSlots part(GetParam(), config, at);
    for (size_t i = 0; i < part.slots.size(); ++i)
      if (part.slots[i].layer_kind == LayerKind::kExperts) {
        EXPECT_EQ(part.values->form(i).format, whole.values->form(i).format)
            << describe_slot(part.slots[i]) << ", " << at.size << " ranks";
      }
  }
}

void expect_planned_memory(const std::string& path, const ModelConfig& config) {
  for (const RankOf& at : {RankOf{0, 1}, {1, 2}, {3, 4}}) {
    const std::vector<StoredForm> stored = stored_forms(path, config, at);
    for (const auto& ops : {make_reference_ops(), make_cpu_ops(2)})
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const LoadedModel model =
            load_model(path, config,
                       {.precision = uniform_precision(dtype), .progress = {}, .part = at}, *ops);
        const MemoryPlan plan = plan_memory(model.spec, {.ops = *ops,
                                                         .precision = uniform_precision(dtype),
                                                         .stored = stored,
                                                         .ranks = at.size,
                                                         .available = size_t{1} << 40});
        EXPECT_EQ(plan.weights, model.bytes) << ops->name() << ", " << at.size << " ranks";
      }
  }
}

TEST_P(NativeWeights, TakeTheMemoryThatThePlanSays) {
  for (const ModelConfig& config : ways_to_cut(GetParam()))
    expect_planned_memory(GetParam(), config);
}

// Pieces in memory of their own, as they travel to a device, hold the same bytes; and the bits of
// what is loaded do not depend on the size of the pieces.
TEST_P(NativeWeights, AreTheSameInPieces) {
  const ModelConfig config = read_model_config(GetParam());
  const std::vector<Slot> slots = slots_of(config.spec);
  const auto values = stored_values(GetParam(), config, slots, DType::kF32);
  const auto bytes = [](const Tensor& t) {
    return std::string(static_cast<const char*>(t.data), byte_size(t.dtype, t.elements()));
  };
  for (size_t i = 0; i < slots.size(); ++i) {
    const WeightFormat format = values->form(i).format;
    if (!format.quantized()) continue;
    const int64_t rows = slots[i].out;
    const Whole whole(slots[i], format);
    const Linear first = whole.rows(0, rows, rows);
    values->fill_codes(i, 0, first);
    std::vector<std::byte> memory(CodeBuffer::piece_bytes(slots[i], format, rows));
    const Linear piece = CodeBuffer::piece(slots[i], format, rows, memory.data());
    values->fill_codes(i, 0, piece);
    EXPECT_EQ(bytes(piece.weight), bytes(first.weight));
    EXPECT_EQ(bytes(piece.scale), bytes(first.scale));
    if (format.zero) {
      EXPECT_EQ(bytes(piece.zero), bytes(first.zero));
    }
  }
  const auto ops = make_reference_ops();
  const LoadedModel whole = load(GetParam(), *ops);
  const LoadedModel rows =
      load(GetParam(), *ops, DType::kF32, {.progress = {}, .threads = 3, .chunk_bytes = 1});
  EXPECT_EQ(logits(rows, *ops), logits(whole, *ops));
}

// Weights are the same numbers, so only sums are rounded in another order: see the tolerance of
// quantized_checkpoints_test.cc. Formats that round activations compute another model, which the
// backends agree about: of its rounded activations, few fall on the other side of a tie.
TEST_P(NativeWeights, ComputeWhatWidenedOnesDo) {
  const auto cpu = make_cpu_ops(2), judge = make_reference_ops();
  bool quantized = false, rounds = false;
  for (const StoredForm& form : stored_forms(GetParam(), read_model_config(GetParam()))) {
    quantized = quantized || form.format.quantized();
    rounds = rounds || form.format.input;
  }
  FloatsOnly plain;
  const LoadedModel widened = load(GetParam(), plain);
  Ops& expected = rounds ? *judge : plain;
  const std::vector<float> want =
      rounds ? logits(load(GetParam(), expected), expected) : logits(widened, plain);
  double size = 0;
  for (const float x : want) size = std::max(size, std::abs(static_cast<double>(x)));
  for (Ops* ops : {cpu.get(), judge.get()}) {
    const LoadedModel model = load(GetParam(), *ops);
    if (quantized && ops == judge.get()) {
      EXPECT_LT(model.bytes, widened.bytes);
    }
    const std::vector<float> met = logits(model, *ops);
    double worst = 0;
    for (size_t i = 0; i < met.size(); ++i) {
      const double d = std::abs(static_cast<double>(met[i]) - want[i]);
      worst = d <= worst ? worst : d;
    }
    // One layer of sums of at most 96 products.
    EXPECT_LE(worst, size * (rounds ? 0.05 : 64 * std::sqrt(96) * 0x1p-24)) << ops->name();
  }
}

INSTANTIATE_TEST_SUITE_P(All, NativeWeights, ::testing::ValuesIn(checkpoints()),
                         [](const auto& info) { return short_name(info.param); });

// Whether a layer has the format that the configuration names first, or a relative of it, only its
// tensors tell: FastDeploy's experts in tile order, in w4a8 or in 2 bits, ModelOpt's factors of
// inputs.
bool is_told_by_tensors(const std::string& path) {
  return path.ends_with("/fastdeploy_mix_tiles") || path.ends_with("/fastdeploy_w4a8") ||
         path.ends_with("/fastdeploy_w4a8_tiles") || path.ends_with("/fastdeploy_wint2") ||
         path.ends_with("/modelopt_awq");
}

// A folder with config.json alone is planned as the configuration says.
TEST(StoredForms, FollowFromTheConfigurationWithoutWeights) {
  for (const std::string& path : checkpoints()) {
    if (path.ends_with(".gguf") || is_told_by_tensors(path)) continue;
    const ModelConfig config = read_model_config(path);
    const TestModel folder("LlamaForCausalLM");
    fs::copy_file(fs::path(path) / "config.json", fs::path(folder.dir()) / "config.json",
                  fs::copy_options::overwrite_existing);
    const std::vector<StoredForm> real = stored_forms(path, config);
    const std::vector<StoredForm> said = stored_forms(folder.dir(), config);
    ASSERT_EQ(real.size(), said.size());
    for (size_t i = 0; i < real.size(); ++i) {
      EXPECT_EQ(real[i].format.quantized(), said[i].format.quantized()) << path << " " << i;
      if (real[i].format.quantized()) {
        EXPECT_EQ(real[i].format.dtype, said[i].format.dtype) << path << " " << i;
      }
    }
  }
}

// GPTQ of a width at which memory can be seen: 16 M weights in 8 MB, which would be 34 MB in 16
// bits and 67 MB in float32.
class LargeGptq {
 public:
  LargeGptq() {
    const Json quantization = {
        {"quant_method", "gptq"}, {"bits", 4},   {"group_size", 128},
        {"desc_act", false},      {"sym", true}, {"checkpoint_format", "gptq"}};
    folder_.emplace("LlamaForCausalLM", Json{{"hidden_size", 1024},
                                             {"intermediate_size", 4096},
                                             {"num_hidden_layers", 1},
                                             {"num_attention_heads", 8},
                                             {"num_key_value_heads", 8},
                                             {"vocab_size", 64},
                                             {"quantization_config", quantization}});
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
      add(std::string("self_attn.") + name, 1024, 1024);
    add("mlp.gate_proj", 4096, 1024);
    add("mlp.up_proj", 4096, 1024);
    add("mlp.down_proj", 1024, 4096);
    for (const char* norm : {"model.layers.0.input_layernorm.weight",
                             "model.layers.0.post_attention_layernorm.weight", "model.norm.weight"})
      put(norm, "F32", {1024}, std::string(4096, '\x3e'));
    for (const char* table : {"model.embed_tokens.weight", "lm_head.weight"})
      put(table, "BF16", {64, 1024}, std::string(size_t{64} * 2048, '\x3c'));
    folder_->write("model.safetensors", testing::safetensors_bytes(tensors_));
    tensors_.clear();
    tensors_.shrink_to_fit();
  }
  std::string dir() const { return folder_->dir(); }

 private:
  void put(const std::string& name, const char* dtype, std::vector<int64_t> shape,
           std::string data) {
    tensors_.push_back({name, dtype, std::move(shape), std::move(data)});
  }
  void add(const std::string& name, int64_t out, int64_t in) {
    const std::string module = "model.layers.0." + name;
    std::string words(static_cast<size_t>(out * in / 2), '\0');
    for (char& c : words) c = static_cast<char>(random_());
    put(module + ".qweight", "I32", {in / 8, out}, std::move(words));
    put(module + ".qzeros", "I32", {in / 128, out / 8},
        std::string(static_cast<size_t>(in / 128 * out / 2), '\x77'));
    put(module + ".scales", "F16", {in / 128, out},
        std::string(static_cast<size_t>(in / 128 * out * 2), '\x14'));
  }

  std::optional<TestModel> folder_;
  std::vector<FileTensor> tensors_;
  std::minstd_rand random_{7};
};

// Bytes of this process in memory, now or at most since reset_peak().
size_t memory_line(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return std::stoul(line.substr(key.size() + 1)) << 10;
  return 0;
}
bool reset_peak() { return static_cast<bool>(std::ofstream("/proc/self/clear_refs") << "5"); }

TEST(NativeLoading, NeverHoldsTheWeightsAsFloats) {
  const LargeGptq checkpoint;
  const auto ops = make_cpu_ops(1);
  if (!reset_peak()) GTEST_SKIP() << "the peak of memory cannot be reset here";
  const size_t before = memory_line("VmRSS:");
  const LoadedModel model = load(checkpoint.dir(), *ops, DType::kF32,
                                 {.progress = {}, .threads = 1, .chunk_bytes = 1 << 20});
  const size_t taken = memory_line("VmHWM:") - before;
  // The file's pages, what is kept, and the largest weight on its way, which is half of them.
  constexpr size_t kNative = size_t{16} << 19;
  EXPECT_LT(model.bytes, kNative * 5 / 4);
  EXPECT_LT(taken, kNative * 7 / 2);  // 29 MB
}

TEST(NativeLoading, FormatsThatAreNotMultipliedAreNamedWhenMemoryIsShort) {
  const LargeGptq checkpoint;
  const ModelConfig config = read_model_config(checkpoint.dir());
  FloatsOnly ops;
  MemoryRequest request{.ops = ops,
                        .precision = uniform_precision(DType::kF32),
                        .stored = stored_forms(checkpoint.dir(), config),
                        .max_rows = 8,
                        .max_logit_rows = 8,
                        .max_seqs = 1,
                        .max_model_len = 64,
                        .available = size_t{48} << 20};
  const auto refusal = [](const ModelSpec& spec, const MemoryRequest& r) -> std::string {
    try {
      plan_memory(spec, r);
    } catch (const LoadError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal(config.spec, request),
              AllOf(HasSubstr("4 weights are int4 with a float16 scale for each 1 x 128"),
                    HasSubstr("use --device cpu"), Not(HasSubstr("--quantization"))));
  const auto cpu = make_cpu_ops(1);
  MemoryRequest fits{.ops = *cpu,
                     .precision = request.precision,
                     .stored = request.stored,
                     .max_rows = 8,
                     .max_logit_rows = 8,
                     .max_seqs = 1,
                     .max_model_len = 64,
                     .available = request.available};
  EXPECT_EQ(refusal(config.spec, fits), "accepted");
}

// Blocks that cross rows have no form that is multiplied, and the log says so on every backend.
TEST(NativeLoading, FormsThatCannotBeKeptAreCounted) {
  const std::string path = std::string(SKIFF_SOURCE_DIR) + "/tests/quantized/bnb_nf4";
  const ModelConfig config = read_model_config(path);
  const std::vector<StoredForm> stored = stored_forms(path, config);
  const std::vector<Kept> kept =
      kept_slots(slots_of(config.spec), {}, {}, stored, [](const WeightFormat&) { return true; });
  EXPECT_THAT(widened_formats(kept, stored),
              ::testing::ElementsAre("4 weights are bitsandbytes nf4, blocks of 64"));
}

// Shared experts in another format than the routed ones are not widened: they stay apart.
TEST(SharedExperts, AreSeparatedWhereFormatsDiffer) {
  const TestModel folder("Ernie4_5_MoeForCausalLM", {{"moe_intermediate_size", 8},
                                                     {"moe_num_experts", 4},
                                                     {"moe_k", 2},
                                                     {"moe_num_shared_experts", 2}});
  ModelConfig config = folder.config();
  EXPECT_FALSE(shared_experts_differ(folder.dir(), config));
  const Json ct = {{"quant_method", "compressed-tensors"},
                   {"format", "pack-quantized"},
                   {"config_groups",
                    {{"group_0",
                      {{"targets", {"re:.*mlp.experts.*"}},
                       {"weights", {{"num_bits", 4}, {"strategy", "channel"}}}}}}}};
  config.quantization = read_compressed_tensors(Fields(ct, "config.json"));
  config.quantization.method = "compressed-tensors";
  EXPECT_TRUE(shared_experts_differ(folder.dir(), config));
  const size_t parameters = parameter_count(config.spec);
  separate_shared_experts(config.spec);
  const auto& moe = std::get<Moe>(config.spec.layers.back().ffn);
  EXPECT_EQ(moe.router.always, 0);
  EXPECT_EQ(moe.shared_width, 16);
  EXPECT_EQ(parameter_count(config.spec), parameters);
}

// One scale for a token's inputs covers all those of a wide shared expert, which may be cut only
// where it is no wider than the others or its inputs are not rounded.
TEST(SharedExperts, AreSeparatedWhereCutInputsWouldBeRoundedApart) {
  const Json eight = {{"num_bits", 8}, {"strategy", "channel"}};
  const Json token = {{"num_bits", 8}, {"strategy", "token"}, {"dynamic", true}};
  const auto differ = [&](int shared, const char* format, const Json& activations) {
    const TestModel folder("Ernie4_5_MoeForCausalLM", {{"moe_intermediate_size", 8},
                                                       {"moe_num_experts", 4},
                                                       {"moe_k", 2},
                                                       {"moe_num_shared_experts", shared}});
    const Json ct = {
        {"quant_method", "compressed-tensors"},
        {"format", format},
        {"config_groups",
         {{"group_0",
           {{"targets", {"Linear"}}, {"weights", eight}, {"input_activations", activations}}}}}};
    ModelConfig config = folder.config();
    config.quantization = read_compressed_tensors(Fields(ct, "config.json"));
    config.quantization.method = "compressed-tensors";
    return shared_experts_differ(folder.dir(), config);
  };
  EXPECT_TRUE(differ(2, "int-quantized", token));
  EXPECT_FALSE(differ(1, "int-quantized", token));
  EXPECT_FALSE(differ(2, "pack-quantized", nullptr));
}

}  // namespace
}  // namespace skiff::model
