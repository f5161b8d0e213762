// Tests vectors of pooled prompts against the reference decoder, and that neither company, chunks,
// cached prefixes nor preemption show in their bits on the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <mutex>

#include "base/load_error.h"
#include "comm/communicator.h"
#include "engine/llm.h"
#include "model/model_testing.h"
#include "model/single.h"
#include "ops/reference/reference_ops.h"

namespace skiff::engine {
namespace {

using Vectors = std::map<SeqId, std::vector<float>>;
constexpr int kWidth = 16;  // both a row's width and the number of tokens

// A Llama whose head is the identity, so that the logits of a model that generates are the rows
// behind the last norm.
class Folder {
 public:
  Folder() : model_("LlamaForCausalLM", {{"vocab_size", kWidth}, {"torch_dtype", "float32"}}) {
    std::vector<testing::FileTensor> tensors = testing::TestModel::llama_tensors();
    for (testing::FileTensor& tensor : tensors) {
      if (tensor.shape[0] != 40) continue;
      tensor.shape = {kWidth, kWidth};
      tensor.data.resize(size_t{kWidth} * kWidth * sizeof(float));
      if (tensor.name == "lm_head.weight") tensor.data = identity();
    }
    model_.write("model.safetensors", testing::safetensors_bytes(tensors));
  }
  std::string path() const { return model_.dir(); }

 private:
  static std::string identity() {
    std::vector<float> values(size_t{kWidth} * kWidth, 0);
    for (size_t i = 0; i < kWidth; ++i) values[i * kWidth + i] = 1;
    return testing::f32_bytes(values);
  }
  testing::TestModel model_;
};

std::vector<Token> prompt_of(SeqId id, int length) {
  std::vector<Token> prompt;
  prompt.reserve(static_cast<size_t>(length));
  for (int i = 0; i < length; ++i)
    prompt.push_back((i * 5 + (i < 9 ? 0 : static_cast<int>(id) * 3)) % kWidth);
  return prompt;
}

NewSequence pooled(SeqId id, int length, Pooling pooling) {
  NewSequence s;
  s.id = id;
  s.prompt = prompt_of(id, length);
  s.pooling = std::move(pooling);
  return s;
}

// What the prompts that are pooled give on an engine of these options.
Vectors run(const EngineConfig& config, const std::vector<NewSequence>& sequences,
            EngineStats* stats = nullptr) {
  std::mutex mutex;
  std::condition_variable changed;
  Vectors out;
  size_t ended = 0;
  const auto llm = Llm::start(config, [&](std::vector<Event> events) {
    std::lock_guard lock(mutex);
    for (Event& event : events) {
      if (event.finish == Finish::kNone) continue;
      ++ended;
      if (event.finish == Finish::kLength) continue;  // one that generates
      EXPECT_EQ(event.finish, Finish::kStop) << event.why;
      EXPECT_TRUE(event.tokens.empty());
      out[event.seq] = std::move(event.pooled);
    }
    changed.notify_all();
  });
  for (const NewSequence& sequence : sequences) llm->submit(sequence);
  std::unique_lock lock(mutex);
  EXPECT_TRUE(
      changed.wait_for(lock, std::chrono::seconds(30), [&] { return ended == sequences.size(); }));
  if (stats) *stats = llm->stats();
  return out;
}

EngineConfig config_of(const Folder& folder, const char* device = "cpu") {
  EngineConfig config;
  config.model = folder.path();
  config.device = device;
  config.threads = 1;
  config.block_size = 4;
  config.quiet = true;
  config.pooling.runner = "pooling";
  return config;
}

// The rows behind the last norm, from the reference decoder alone.
std::vector<std::vector<double>> rows_of(const Folder& folder, const std::vector<Token>& prompt) {
  const auto ops = make_reference_ops();
  const model::LoadedModel model =
      model::load_model(folder.path(), model::read_model_config(folder.path()),
                        {.precision = uniform_precision(DType::kF32), .progress = {}}, *ops);
  comm::Mesh mesh = comm::make_solo_mesh();
  const auto length = static_cast<int>(prompt.size());
  model::SingleSequence sequence(model, *ops, mesh, DType::kF32, length, length);
  const Tensor logits = sequence.forward(prompt);
  std::vector<std::vector<double>> rows;
  rows.reserve(prompt.size());
  for (int r = 0; r < length; ++r)
    rows.emplace_back(logits.row<float>(r), logits.row<float>(r) + kWidth);
  return rows;
}

std::vector<double> oracle(const Folder& folder, const NewSequence& in) {
  const std::vector<std::vector<double>> rows = rows_of(folder, in.prompt);
  if (in.pooling.rows == Pooling::kFirst) return rows.front();
  if (in.pooling.rows == Pooling::kLast) return rows.back();
  std::vector<double> mean(kWidth, 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < kWidth; ++i) mean[i] += row[i] / static_cast<double>(rows.size());
  return mean;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  // Rows have length 4 behind a norm of 16 numbers; float32 through two layers loses few bits.
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(static_cast<double>(got[i]), want[i], 1e-4);
}

std::vector<NewSequence> all_kinds(int length) {
  std::vector<NewSequence> all;
  SeqId id = 0;
  for (const auto rows : {Pooling::kLast, Pooling::kFirst, Pooling::kMean})
    for (const int n : {length, 1, 30, length})
      all.push_back(pooled(++id, n, {.rows = rows, .logits = false, .columns = {}}));
  return all;
}

TEST(Pooling, RowsAreThoseOfTheReferenceDecoder) {
  const Folder folder;
  const std::vector<NewSequence> sequences = all_kinds(50);
  for (const char* device : {"cpu", "reference"}) {
    SCOPED_TRACE(device);
    const Vectors got = run(config_of(folder, device), sequences);
    for (const NewSequence& in : sequences) expect_near(got.at(in.id), oracle(folder, in));
  }
}

TEST(Pooling, NeitherCompanyNorChunksShowInAnyBit) {
  const Folder folder;
  const std::vector<NewSequence> sequences = all_kinds(60);
  Vectors alone;
  for (const NewSequence& in : sequences) alone.merge(run(config_of(folder), {in}));
  EngineConfig config = config_of(folder);
  EXPECT_EQ(run(config, sequences), alone) << "together";
  config.max_num_batched_tokens = 8;
  EngineStats stats;
  EXPECT_EQ(run(config, sequences, &stats), alone) << "in chunks";
  EXPECT_GT(stats.steps, 20u);
  EXPECT_GT(stats.cached_tokens, 0u) << "LAST finds the beginning that prompts share";
}

// Sequences that generate need ever more memory, which those behind them must give back.
TEST(Pooling, ASequenceThatWasPreemptedIsPooledFromItsBeginning) {
  const Folder folder;
  const std::vector<NewSequence> sequences = all_kinds(60);
  const Vectors alone = run(config_of(folder), sequences);
  EngineConfig config = config_of(folder);
  config.pooling.runner = "generate";
  config.max_num_batched_tokens = 8;
  config.max_num_seqs = 6;
  config.num_blocks_override = 40;
  std::vector<NewSequence> all;
  for (SeqId id = 100; id < 103; ++id) {
    all.push_back(pooled(id, 10, {}));
    all.back().stop.max_tokens = 100;
  }
  all.insert(all.end(), sequences.begin(), sequences.end());
  EngineStats stats;
  EXPECT_EQ(run(config, all, &stats), alone);
  EXPECT_GT(stats.preemptions, 0u);
}

TEST(Pooling, LogitsAreThoseOfTheLastRow) {
  const Folder folder;
  EngineConfig config = config_of(folder);
  config.pooling.convert = "classify";
  const Pooling whole{.rows = Pooling::kLast, .logits = true, .columns = {}};
  const Pooling some{.rows = Pooling::kLast, .logits = true, .columns = {11, 2}};
  config.max_num_batched_tokens = 8;
  const NewSequence one = pooled(1, 40, whole), two = pooled(1, 40, some);
  const std::vector<float> logits = run(config, {one}).at(1);
  expect_near(logits, rows_of(folder, one.prompt).back());  // the head is the identity
  EXPECT_EQ(run(config, {two}).at(1), (std::vector<float>{logits[11], logits[2]}));
}

TEST(Pooling, AModelThatIsPooledDoesNotGenerate) {
  const Folder folder;
  std::mutex mutex;
  std::condition_variable changed;
  std::string why;
  const auto llm = Llm::start(config_of(folder), [&](const std::vector<Event>& events) {
    std::lock_guard lock(mutex);
    for (const Event& event : events) why += event.why;
    changed.notify_all();
  });
  NewSequence in = pooled(1, 5, {});
  llm->submit(in);
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return !why.empty(); }));
  EXPECT_NE(why.find("cannot generate"), why.npos) << why;
}

}  // namespace
}  // namespace skiff::engine
