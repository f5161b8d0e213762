// engine/module_testing.h -- for tests: small modules that draft, and what numpy computes of them
// (tools/golden/make_mtp.py, make_eagle.py).
#pragma once
#include <gmock/gmock.h>

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/drafter_source.h"
#include "engine/schedules_testing.h"
#include "model/golden_cases_testing.h"
#include "model/mtp.h"

namespace skiff::engine {

// A module with what it shares, and a text with hidden rows, of one rank.
class Module {
 public:
  // `dir` has expected.st.
  Module(const std::string& dir, const DrafterSource& from, std::unique_ptr<Ops> backend)
      : ops(std::move(backend)), source(from) {
    std::ifstream in(dir + "/expected.st", std::ios::binary);
    const std::string file(std::istreambuf_iterator<char>(in), {});
    const auto header = parse_safetensors(std::as_bytes(std::span(file)));
    const auto floats = [&](const char* name) {
      return skiff::testing::read_values<float>(*header, file, name);
    };
    const auto tokens_of = [&](const char* name) {
      return skiff::testing::read_values<Token>(*header, file, name);
    };
    width_ = source.config.spec.hidden;
    embed_ = floats("embed"), head_ = floats("head");
    if (std::ranges::find(header->tensors, "norm", &TensorEntry::name) != header->tensors.end())
      norm_ = floats("norm");
    else
      norm_.assign(static_cast<size_t>(width_), 1);  // no head of EAGLE uses it
    hidden_ = floats("hidden"), logits = floats("logits");
    tokens = tokens_of("tokens"), drafts = tokens_of("drafts");
    weights = model::load_model(source.folder, source.config,
                                {.precision = uniform_precision(DType::kF32),
                                 .schemes = source.schemes,
                                 .part = source.part},
                                *ops);
    model::share_weights(weights.spec, weights.weights, shared());
  }

  int rows() const { return static_cast<int>(std::ssize(tokens)) - 1; }
  Tensor hidden_rows() {
    return host_tensor(hidden_.data(), DType::kF32, {rows(), std::ssize(hidden_) / rows()});
  }
  ModelDrafter::Options options() const {
    return {.limits = {.max_seqs = 1, .max_rows = 32, .max_context = 64, .max_logit_rows = 2},
            .tokens = static_cast<int>(drafts.size()),
            .vocabulary = source.tokens};
  }

  std::unique_ptr<Ops> ops;
  const DrafterSource source;
  model::LoadedModel weights;
  std::vector<float> logits;
  std::vector<Token> tokens, drafts;

 private:
  model::ModelWeights shared() {
    const int64_t vocab = source.config.spec.vocab, part = vocab / source.part.size;
    const auto view = [](std::vector<float>& x, std::initializer_list<int64_t> shape) {
      return host_tensor(x.data(), DType::kF32, shape);
    };
    model::ModelWeights served;
    served.embed = view(embed_, {vocab, width_});
    served.norm = {view(norm_, {width_, 1}), weights.spec.eps};
    const Tensor head = view(head_, {vocab, width_}).row_range(source.part.rank * part, part);
    served.head = ops->prepare({.weight = head}, {.dtype = DType::kF32}, &prepared_head_);
    return served;
  }

  int64_t width_ = 0;
  std::vector<float> embed_, head_, norm_, hidden_;
  Buffer prepared_head_;
};

// Drafts behind a prompt in two steps, of which the second begins with row `first`. The first pass
// takes all rows; further drafts follow with the module's own rows.
inline std::vector<Token> drafts_of(Module& m, comm::Mesh& mesh, int first) {
  const int rows = m.rows();
  model::KvCache kv(m.weights.spec, 8, 4, kv_format(DType::kF32), Device{});
  ModelDrafter drafter(m.weights, *m.ops, mesh, kv.layers(), m.options());
  std::vector<Token> drafts;
  for (const auto& [begin, end] : {std::pair{0, first}, std::pair{first, rows}}) {
    if (begin == end) continue;
    StepPlan plan{.page_start = {0, 7}};
    plan.spans = {{.begin = begin, .count = end - begin, .sample = end == rows}};
    for (BlockId page : {5, 1, 7, 2, 4, 0, 3}) plan.pages.push_back(page);
    plan.tokens.assign(m.tokens.begin() + begin, m.tokens.begin() + end);
    if (begin == 0)
      plan.opened = {{.history = {m.tokens.begin(), m.tokens.end() - 1}, .prompt_len = rows}};
    StepResult result;
    result.tokens.resize(1);
    result.drafts.resize(1);
    if (end == rows) result.tokens[0] = {m.tokens.back()};
    drafter.draft(plan, m.hidden_rows().row_range(begin, end - begin), result);
    drafts = result.drafts[0];
  }
  return drafts;
}

// Nothing is drafted behind the steps of a prompt's first rows and of its other tokens, one by one,
// but behind the last.
inline std::vector<Token> drafts_behind_pause(Module& m, int page_size, int first) {
  const int rows = m.rows(), pages = 32 / page_size + 1;
  model::KvCache kv(m.weights.spec, pages, page_size, kv_format(DType::kF32), Device{});
  comm::Mesh mesh = comm::make_solo_mesh();
  ModelDrafter drafter(m.weights, *m.ops, mesh, kv.layers(), m.options());
  StepResult result;
  for (int begin = 0, end = first; begin < rows; begin = end++) {
    StepPlan plan{.page_start = {0, pages}};
    plan.spans = {{.begin = begin, .count = end - begin, .sample = true}};
    for (BlockId page = 0; page < pages; ++page) plan.pages.push_back(pages - 1 - page);
    plan.tokens.assign(m.tokens.begin() + begin, m.tokens.begin() + end);
    if (begin == 0)
      plan.opened = {{.history = {m.tokens.begin(), m.tokens.begin() + end}, .prompt_len = end}};
    plan.drafts = end == rows;
    result = {.tokens = {{m.tokens[static_cast<size_t>(end)]}}, .drafts = {{}}};
    drafter.draft(plan, m.hidden_rows().row_range(begin, end - begin), result);
    EXPECT_EQ(result.drafts[0].empty(), end < rows);
  }
  return result.drafts[0];
}

// Returns what the module drafts with two steps in flight: the hidden rows of a step are gone when
// its token is known.
inline std::vector<Token> drafts_in_flight(Module& m, int page_size, int first) {
  const int rows = m.rows(), pages = 32 / page_size + 1;
  model::KvCache kv(m.weights.spec, pages, page_size, kv_format(DType::kF32), Device{});
  comm::Mesh mesh = comm::make_solo_mesh();
  ModelDrafter drafter(m.weights, *m.ops, mesh, kv.layers(), m.options());
  std::deque<StepPlan> flying;  // whose rows are kept
  const auto finish = [&](const StepPlan& plan, Tensor hidden) {
    const int end = plan.spans[0].begin + plan.spans[0].count;
    StepResult result{.tokens = {{m.tokens[static_cast<size_t>(end)]}}, .drafts = {{}}};
    drafter.draft(plan, hidden, result);
    return result.drafts[0];
  };
  std::vector<Token> drafts;
  for (int begin = 0, end = first; begin < rows; begin = end++) {
    StepPlan plan{.page_start = {0, pages}};
    plan.spans = {{.begin = begin, .count = end - begin, .sample = true}};
    for (BlockId page = 0; page < pages; ++page) plan.pages.push_back(pages - 1 - page);
    plan.tokens.assign(m.tokens.begin() + begin, m.tokens.begin() + end);
    if (begin == 0)
      plan.opened = {{.history = {m.tokens.begin(), m.tokens.begin() + end}, .prompt_len = end}};
    plan.drafts = end == rows;
    const Tensor hidden = m.hidden_rows().row_range(begin, end - begin);
    const bool waits = drafter.can_wait(plan);
    EXPECT_EQ(waits, begin > 0 && end < rows);
    if (waits) {
      drafter.keep(plan, hidden);
      flying.push_back(plan);
    }
    while (!flying.empty() && flying.size() > (waits ? 1 : 0)) {
      EXPECT_THAT(finish(flying.front(), {}), ::testing::IsEmpty());
      flying.pop_front();
    }
    if (!waits) drafts = finish(plan, hidden);
  }
  return drafts;
}

// A batch of one sequence of some rows in block 0, all of which have logits.
struct OneSequence {
  explicit OneSequence(std::vector<Token> of)
      : tokens(std::move(of)), at(tokens.size()), row_start{0, rows()}, kv_len{rows()}, page{0} {
    for (size_t i = 0; i < at.size(); ++i) at[i] = static_cast<int32_t>(i);
  }
  int rows() const { return static_cast<int>(std::ssize(tokens)); }
  RaggedBatch batch() {
    const auto i32 = [](std::vector<int32_t>& x, std::initializer_list<int64_t> shape) {
      return host_tensor(x.data(), DType::kI32, shape);
    };
    return {.num_seqs = 1,
            .num_tokens = rows(),
            .max_rows = rows(),
            .max_kv = rows(),
            .tokens = i32(tokens, {rows()}),
            .positions = i32(at, {rows()}),
            .row_start = i32(row_start, {2}),
            .kv_len = i32(kv_len, {1}),
            .pages = i32(page, {1, 1}),
            .out_rows = i32(at, {rows()}),
            .host_row_start = row_start,
            .host_kv_len = kv_len};
  }
  std::vector<Token> tokens;
  std::vector<int32_t> at, row_start, kv_len, page;
};

// What a Decoder gives for one sequence; `hidden` is for a module.
struct Computed {
  Computed(const model::LoadedModel& model, Ops& ops, std::vector<Token> tokens, Tensor hidden = {})
      : sequence(std::move(tokens)),
        kv(model.spec, 1, 32, kv_format(DType::kF32), Device{}),
        decoder(model.spec, model.weights, ops, mesh, DType::kF32),
        arena(Buffer(Device{}, model::Decoder::arena_bytes(model.spec, DType::kF32, sequence.rows(),
                                                           sequence.rows(), ops))) {
    ops.reserve({.spec = model.spec,
                 .max_rows = sequence.rows(),
                 .max_logit_rows = sequence.rows(),
                 .max_seqs = 1,
                 .max_context = 64});
    const RaggedBatch batch = sequence.batch();
    ops.begin_step(batch, {});
    combined.resize(static_cast<size_t>(sequence.rows()) * static_cast<size_t>(model.spec.hidden));
    if (model.spec.join == ModelSpec::kBeside) {
      const Tensor rows =
          host_tensor(combined.data(), DType::kF32, {sequence.rows(), model.spec.hidden});
      decoder.combine(rows, hidden);
      hidden = rows;
    }
    out = decoder.forward(batch, kv.layers(), arena, hidden);
  }
  OneSequence sequence;
  model::KvCache kv;
  comm::Mesh mesh = comm::make_solo_mesh();
  model::Decoder decoder;
  Arena arena;
  std::vector<float> combined;
  model::Forward out;
};

// The tests that every module passes. `module(rank)` makes that of a rank.
class ModuleGolden {
 public:
  explicit ModuleGolden(std::function<std::unique_ptr<Module>(const model::RankOf&)> module)
      : module_(std::move(module)) {}

  void expect_drafts() const {
    const auto m = module_({});
    comm::Mesh mesh = comm::make_solo_mesh();
    for (const int first : {1, 7, m->rows() - 1, m->rows()})
      EXPECT_EQ(drafts_of(*m, mesh, first), m->drafts) << first;
  }
  void expect_drafts_of_two_ranks() const {
    const auto first = module_({.rank = 0, .size = 2}), second = module_({.rank = 1, .size = 2});
    auto meshes = comm::make_thread_meshes(2);
    for (const int begin : {1, first->rows()}) {
      std::vector<Token> other;
      std::thread thread([&] { other = drafts_of(*second, meshes[1], begin); });
      EXPECT_EQ(drafts_of(*first, meshes[0], begin), first->drafts) << begin;
      thread.join();
      EXPECT_EQ(other, first->drafts) << begin;
    }
  }
  // It has caught up, however far it lagged behind.
  void expect_drafts_behind_pauses() const {
    const auto m = module_({});
    for (const int page_size : {4, 64})
      for (const int first : {1, 3, m->rows() - 2})
        EXPECT_EQ(drafts_behind_pause(*m, page_size, first), m->drafts)
            << page_size << ", " << first;
  }
  void expect_drafts_in_flight() const {
    const auto m = module_({});
    for (const int page_size : {1, 4, 64})
      for (const int first : {1, 3, m->rows() - 2})
        EXPECT_EQ(drafts_in_flight(*m, page_size, first), m->drafts) << page_size << ", " << first;
  }
  // Some hundred roundings of float32 lie between logits and the weights.
  void expect_logits(float tolerance) const {
    const auto m = module_({});
    const Computed made(m->weights, *m->ops, {m->tokens.begin() + 1, m->tokens.end()},
                        m->hidden_rows());
    const int64_t cols = made.out.logits.cols();
    for (int64_t r = 0; r < m->rows(); ++r)
      for (int64_t i = 0; i < cols; ++i)
        ASSERT_NEAR(made.out.logits.row<float>(r)[i], m->logits[static_cast<size_t>(r * cols + i)],
                    tolerance)
            << "row " << r;
  }

 private:
  std::function<std::unique_ptr<Module>(const model::RankOf&)> module_;
};

}  // namespace skiff::engine
