// Steps of a small decoder's attention layers in the order of an engine: batches arrive with
// begin_step(), decodes and checks of drafts are recorded and replayed, and nothing is waited for
// between steps; or each step is one with its arrivals and results (Ops::run_step), and rows move
// back. The results are compared with the formula, applied to the final contents of the
// caches, and bit for bit with a device that waits after every operation.
#include <algorithm>
#include <map>
#include <numeric>

#include "ops/suite/attention.h"
#include "tensor/device_memory.h"

namespace skiff::suite {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kI32 = DType::kI32;
constexpr int kLayers = 2, kHidden = 256, kVocab = 100;

struct StepsCase {
  const char* name;
  int heads, kv_heads, head_dim, window, page_size;
  bool norms, bias;
  std::vector<int> cached;  // tokens of each sequence that lie in the cache at the beginning
  std::vector<std::vector<int>> steps;  // rows of each sequence
};

const StepsCase kCases[] = {
    {"four_sequences",
     8,
     2,
     128,
     0,
     64,
     false,
     true,
     {0, 0, 0, 300},
     {{200, 1, 70, 130},
      {1, 1, 1, 1},
      {1, 1, 1, 1},
      {1, 0, 1, 1},
      {1, 1, 1, 1},
      {0, 1, 1, 0},
      {1, 1, 65, 1},
      {1, 1, 1, 1},
      {1, 1, 1, 1},
      {1, 1, 1, 1}}},
    {"windows_and_norms",
     14,
     2,
     64,
     100,
     16,
     true,
     false,
     {40, 0, 500},
     {{60, 3, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 0}, {2, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
    {"wide_heads",
     4,
     1,
     256,
     0,
     32,
     false,
     false,
     {0, 100},
     {{150, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}},
    {"one_sequence", 4, 2, 128, 0, 64, false, false, {62}, {{1}, {1}, {1}, {1}, {1}, {1}}},
    {"long_and_short",
     16,
     1,
     128,
     0,
     64,
     false,
     false,
     {2500, 3, 3, 3, 3, 3, 3, 3, 3},
     {{1, 1, 1, 1, 1, 1, 1, 1, 1},
      {1, 1, 1, 1, 1, 1, 1, 1, 1},
      {1, 1, 1, 1, 0, 1, 1, 1, 1},
      {1, 1, 1, 1, 1, 1, 1, 1, 1}}},
    {"drafts",
     16,
     1,
     128,
     0,
     64,
     false,
     false,
     {0, 60, 0, 300},
     {{30, 3, 70, 130},
      {3, 3, 3, 3},
      {3, 3, 3, 3},
      {1, 1, 1, 1},
      {3, 3, 3, 3},
      {1, 3, 3, 2},
      {3, 3, 3, 3},
      {1, 1, 1, 1},
      {1, 1, 1, 1}}},
};
void PrintTo(const StepsCase& c, std::ostream* to) { *to << c.name; }

// The results of one step, in host memory.
struct Result {
  Stepped step;
  std::vector<Tensor> qkv, seen;  // one per layer
  Tensor positions;               // as the step has computed with them, if it was one
};

constexpr int kMostBack = 3;  // rows of a sequence move back by 0 to so many positions

// Rows of each sequence in a step that is recorded: 1 where none has more, a small number where all
// have it. 0: the step is not recorded.
int uniform_rows(const std::vector<int>& rows) {
  if (std::ranges::all_of(rows, [](int n) { return n <= 1; })) return 1;
  const int first = rows.front();
  return first <= 4 && std::ranges::count(rows, first) == std::ssize(rows) ? first : 0;
}

class Steps {
 public:
  Steps(Ops& ops, const StepsCase& c, bool as_one = false)
      : ops_(ops),
        c_(c),
        as_one_(as_one),
        spec_(gqa(c.heads, c.kv_heads, c.head_dim, c.window)),
        ws_(21) {
    cols_ = int64_t{c.heads + 2 * c.kv_heads} * c.head_dim;
    q_cols_ = int64_t{c.heads} * c.head_dim;
    std::vector<Piece> whole;
    for (size_t s = 0; s < c.cached.size(); ++s) {
      int length = c.cached[s];
      for (const std::vector<int>& rows : c.steps) length += rows[s];
      whole.push_back({0, length + kMostBack});
    }
    // Each layer has its own cache; equal seeds give all the same page table.
    for (int l = 0; l < kLayers; ++l) {
      Workspace& ws = workspaces_.emplace_back(22);
      Paged& paged =
          paged_.emplace_back(ws, spec_, kBF16, c.page_size, whole, kPools[l % std::ssize(kPools)]);
      for (const Tensor& t : {paged.kv.k, paged.kv.v})
        for (int64_t r = 0; r < t.rows(); ++r)
          for (int64_t i = 0; i < t.cols(); ++i) put(t, r, i, ws_.rng.normal());
      caches_.push_back(on_device_cache(paged));
    }
    make_weights();
    refused_ = take(kI32, {1 + kMostBack});
    ops_.copy(refused_, ws_.ints({0, 1, 2, kMostBack}));
    ops_.wait(ops_.mark());
  }

  std::vector<Result> run() {
    std::vector<Prepared> prepared = prepare_steps();
    for (const Prepared& p : prepared) launch(p);
    ops_.wait(ops_.mark());
    std::vector<Result> results;
    for (const Prepared& p : prepared) {
      Result& result = results.emplace_back();
      result.step = p.step;
      result.positions = p.positions;
      for (const Tensor& t : p.qkv) result.qkv.push_back(download(t));
      for (const Tensor& t : p.seen) result.seen.push_back(download(t));
    }
    for (size_t l = 0; l < kLayers; ++l) {
      ops_.copy(paged_[l].kv.k, caches_[l].k);
      ops_.copy(paged_[l].kv.v, caches_[l].v);
    }
    ops_.wait(ops_.mark());
    return results;
  }

  // Every key and value that was stored is that of its row, and every row attended to its context.
  void expect_right(const std::vector<Result>& results) {
    for (size_t i = 0; i < results.size(); ++i) {
      SCOPED_TRACE(fmt::format("step {}", i));
      const Stepped& step = results[i].step;
      const int32_t* positions = step.batch.positions.as<int32_t>();
      if (as_one_) {
        EXPECT_EQ(all_bytes(results[i].positions), all_bytes(step.batch.positions));
      }
      for (size_t l = 0; l < kLayers; ++l) {
        SCOPED_TRACE(fmt::format("layer {}", l));
        const Tensor &qkv = results[i].qkv[l], &seen = results[i].seen[l];
        const Paged& paged = paged_[l];
        const int64_t rows = step.batch.num_tokens, every = std::max<int64_t>(1, rows / 12);
        for (int64_t r = 0; r < rows; ++r) {
          const int seq = step.seq[static_cast<size_t>(r)], position = positions[r];
          expect_stored(qkv, r, paged, seq, position);
          const bool last = r + 1 == rows || step.seq[static_cast<size_t>(r + 1)] != seq;
          if (r % every != 0 && !last) continue;
          for (int h = 0; h < spec_.heads; ++h)
            expect_attention_at(seen.row_range(r, 1), qkv.row_range(r, 1).col_range(0, q_cols_),
                                spec_, paged, seq, position, h);
        }
      }
    }
  }

 private:
  // Tensors at fixed addresses, for steps of one number of rows.
  struct Frame {
    RaggedBatch batch;
    Tensor x, residual, delta;
    std::vector<Tensor> qkv, seen;  // one per layer
  };
  // All memory that a step needs, so that nothing is allocated while steps run.
  struct Prepared {
    Stepped step;
    int uniform;  // see uniform_rows()
    RaggedBatch batch;
    std::vector<Arrival> arrivals;
    std::vector<Tensor> qkv, seen;  // where its results go
    Tensor positions;               // likewise, where steps are one
  };

  KvLayer on_device_cache(const Paged& paged) {
    KvLayer kv = paged.kv;
    for (Tensor* t : {&kv.k, &kv.v}) {
      const Tensor host = *t;
      Buffer& memory = buffers_.emplace_back(
          ops_.device(), static_cast<size_t>(host.rows() * host.row_stride) * bytes(host.dtype));
      t->data = memory.data();
      t->device = ops_.device();
      ops_.copy(*t, host);
    }
    ops_.wait(ops_.mark());
    return kv;
  }
  void make_weights() {
    const auto matrix = [&](int64_t out, int64_t in, bool bias) {
      Linear plain;
      plain.weight = ws_.random(kBF16, {out, in}, 1 / std::sqrt(static_cast<double>(in)));
      if (bias) plain.bias = ws_.random(kF32, {out}, 0.3);
      return ops_.prepare(plain, {kBF16}, &buffers_.emplace_back());
    };
    for (int l = 0; l < kLayers; ++l) {
      project_.push_back(matrix(cols_, kHidden, c_.bias));
      out_.push_back(matrix(kHidden, q_cols_, false));
    }
    table_ = upload(ws_.random(kBF16, {kVocab, kHidden}));
    norm_ = {.weight = vector(kHidden), .eps = 1e-5f};
    if (c_.norms) q_norm_ = {.weight = vector(c_.head_dim), .eps = 1e-5f};
    if (c_.norms) k_norm_ = {.weight = vector(c_.head_dim), .eps = 1e-5f};
  }
  Tensor vector(int64_t n) { return upload(ws_.random(kF32, {1, n})).reshaped({n}); }
  Tensor take(DType dtype, std::initializer_list<int64_t> shape) {
    Tensor t = host_tensor(nullptr, dtype, shape);
    Buffer& memory = buffers_.emplace_back(
        ops_.device(), std::max<size_t>(64, static_cast<size_t>(t.elements()) * bytes(dtype)));
    return memory.view(dtype, shape);
  }
  Tensor upload(const Tensor& host) {
    const Tensor t = take(host.dtype, {host.rows(), host.cols()});
    ops_.copy(t, host);
    return t;
  }
  Tensor download(const Tensor& t) {
    const Tensor host = ws_.output(t.dtype, {t.rows(), t.cols()});
    ops_.copy(host, t);
    ops_.wait(ops_.mark());
    return host;
  }

  // Recorded steps are padded as by two sequences; a single sequence is not, so that its operations
  // may be gathered.
  int64_t rows_of(const std::vector<int>& rows) const {
    const int uniform = uniform_rows(rows);
    if (uniform == 0) return std::reduce(rows.begin(), rows.end());
    return rows.size() == 1 ? uniform : (std::ssize(rows) + 2) * uniform;
  }
  Frame& frame_of(const std::vector<int>& rows) {
    const int64_t seqs = std::ssize(rows), tokens = rows_of(rows);
    const auto [place, is_new] = frames_.try_emplace({tokens, uniform_rows(rows)});
    Frame& f = place->second;
    if (!is_new) return f;
    f.batch.tokens = take(kI32, {tokens});
    f.batch.positions = take(kI32, {tokens});
    f.batch.row_start = take(kI32, {seqs + 1});
    f.batch.kv_len = take(kI32, {seqs});
    f.batch.pages = take(kI32, {seqs, paged_.front().batch.pages.cols()});
    if (as_one_) f.batch.moved_back = {.slots = take(kI32, {seqs}), .refused = refused_};
    f.x = take(kBF16, {tokens, kHidden});
    f.residual = take(kF32, {tokens, kHidden});
    f.delta = take(kBF16, {tokens, kHidden});
    for (int l = 0; l < kLayers; ++l) {
      f.qkv.push_back(take(kBF16, {tokens, cols_}));
      f.seen.push_back(take(kBF16, {tokens, q_cols_}));
    }
    return f;
  }

  std::vector<Prepared> prepare_steps() {
    std::vector<int> done = c_.cached;
    std::vector<size_t> order(done.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<Prepared> prepared;
    for (const std::vector<int>& rows : c_.steps) {
      std::vector<Piece> pieces;
      for (size_t s = 0; s < rows.size(); ++s) {
        pieces.push_back({done[s], rows[s]});
        done[s] += rows[s];
      }
      Prepared& p = prepared.emplace_back();
      p.step = paged_.front().step(ws_, order, pieces);
      p.uniform = uniform_rows(rows);
      const RaggedBatch& host = p.step.batch;
      const Frame& f = frame_of(rows);
      p.batch = f.batch;
      p.batch.num_seqs = host.num_seqs;
      p.batch.num_tokens = static_cast<int>(f.batch.tokens.rows());
      p.batch.max_rows = host.max_rows, p.batch.max_kv = host.max_kv;
      p.batch.host_row_start = host.host_row_start, p.batch.host_kv_len = host.host_kv_len;
      p.arrivals = {{p.batch.tokens, padded(host.tokens, p.batch.num_tokens)},
                    {p.batch.positions, padded(host.positions, p.batch.num_tokens)},
                    {p.batch.row_start, host.row_start},
                    {p.batch.kv_len, host.kv_len},
                    {p.batch.pages, host.pages}};
      if (as_one_) move_ahead(p, static_cast<int>(prepared.size()));
      for (int l = 0; l < kLayers; ++l) {
        p.qkv.push_back(take(kBF16, {host.num_tokens, cols_}));
        p.seen.push_back(take(kBF16, {host.num_tokens, q_cols_}));
      }
    }
    return prepared;
  }
  // What the host knows of a step whose rows will move back, sequence by sequence another number of
  // positions. The first step makes the plans of such layers known, as in service.
  void move_ahead(Prepared& p, int step) {
    const RaggedBatch& right = p.step.batch;
    std::vector<int32_t> slots, kv_len(right.host_kv_len.begin(), right.host_kv_len.end());
    const Tensor positions = p.arrivals[1].from;
    for (int s = 0; s < right.num_seqs; ++s) {
      const std::span<const int32_t> row = right.host_row_start.subspan(static_cast<size_t>(s), 2);
      const bool moves = step > 1 && row[1] > row[0];
      const int slot = moves ? (s + step) % (2 + kMostBack) - 1 : -1;
      slots.push_back(slot);
      if (slot < 0) continue;
      kv_len[static_cast<size_t>(s)] += slot;
      for (int32_t r = row[0]; r < row[1]; ++r) positions.as<int32_t>()[r] += slot;
      p.batch.max_kv = std::max(p.batch.max_kv, kv_len[static_cast<size_t>(s)]);
    }
    p.arrivals[3].from = ws_.ints(kv_len);
    p.batch.host_kv_len = {p.arrivals[3].from.as<int32_t>(), kv_len.size()};
    p.arrivals.push_back({p.batch.moved_back.slots, ws_.ints(slots)});
    p.positions = ws_.output(kI32, {right.num_tokens});
  }
  Tensor padded(const Tensor& host, int rows) {
    std::vector<int32_t> values(host.as<int32_t>(), host.as<int32_t>() + host.rows());
    values.resize(static_cast<size_t>(rows), 5);
    return ws_.ints(values);
  }

  void launch(const Prepared& p) {
    const bool host = ops_.device() == Device{};
    for (const Arrival& a : p.arrivals)
      if (host) ops_.copy(a.to, a.from);
    const std::span<const Arrival> arrivals = host ? std::span<const Arrival>{} : p.arrivals;
    Frame& f = frames_.at({p.batch.num_tokens, p.uniform});
    std::optional<ReplayKey> key;
    if (p.uniform) key = {.rows = p.batch.num_tokens, .rows_per_seq = p.uniform};
    const Arrival result{p.positions, f.batch.positions.row_range(0, p.positions.rows())};
    if (as_one_) {
      ops_.run_step(key, {p.batch, arrivals, {&result, 1}}, [&] { layers(f, p.batch); });
    } else {
      ops_.begin_step(p.batch, arrivals);
      ops_.replay(key, [&] { layers(f, p.batch); });
    }
    for (size_t l = 0; l < kLayers; ++l) {
      ops_.copy(p.qkv[l], f.qkv[l].row_range(0, p.qkv[l].rows()));
      ops_.copy(p.seen[l], f.seen[l].row_range(0, p.seen[l].rows()));
    }
  }
  void layers(Frame& f, const RaggedBatch& batch) {
    ops_.embed(f.residual, table_, batch.tokens);
    ops_.add_norm(f.x, f.residual, {}, norm_);
    for (size_t l = 0; l < kLayers; ++l) {
      ops_.soon(out_[l]);
      ops_.gqa_project(f.qkv[l], f.x, project_[l], q_norm_, k_norm_, spec_, batch, caches_[l]);
      ops_.gqa_attend(f.seen[l], f.qkv[l].col_range(0, q_cols_), spec_, batch, caches_[l]);
      ops_.linear(f.delta, f.seen[l], out_[l]);
      ops_.add_norm(f.x, f.residual, f.delta, norm_);
    }
  }
  void expect_stored(const Tensor& qkv, int64_t r, const Paged& paged, int seq, int position) {
    const Tensor k = paged.cache_row(paged.kv.k, seq, position);
    const Tensor v = paged.cache_row(paged.kv.v, seq, position);
    const Tensor row = qkv.row_range(r, 1);
    ASSERT_EQ(row_bytes(k, 0), row_bytes(row.col_range(q_cols_, k.cols()), 0)) << "row " << r;
    ASSERT_EQ(row_bytes(v, 0), row_bytes(row.col_range(q_cols_ + k.cols(), v.cols()), 0));
  }

  Ops& ops_;
  const StepsCase& c_;
  const bool as_one_;
  Gqa spec_;
  Workspace ws_;
  int64_t cols_, q_cols_;
  std::deque<Workspace> workspaces_;
  std::deque<Paged> paged_;
  std::deque<Buffer> buffers_;
  std::vector<KvLayer> caches_;
  std::vector<Linear> project_, out_;
  Tensor table_, refused_;
  Norm norm_, q_norm_, k_norm_;
  std::map<std::pair<int64_t, int>, Frame> frames_;  // by rows, and uniform_rows()
};

std::vector<std::byte> all_of(const std::vector<Result>& results) {
  std::vector<std::byte> all;
  for (const Result& r : results) {
    for (const std::vector<Tensor>* list : {&r.qkv, &r.seen}) {
      for (const Tensor& t : *list) {
        const std::vector<std::byte> more = all_bytes(t);
        all.insert(all.end(), more.begin(), more.end());
      }
    }
  }
  return all;
}

std::vector<Backend> step_backends() {
  std::vector<Backend> all = {{"reference", [] { return make_reference_ops(); }},
                              {"cpu_threads_3", [] { return make_cpu_ops(3); }}};
  if (num_cuda_devices() > 0) {
    all.push_back({"cuda", [] { return make_cuda_ops({.synchronous = true}); }});
    all.push_back({"cuda_gathered", [] { return make_cuda_ops({}); }});
    all.push_back({"cuda_one_by_one", [] { return make_cuda_ops({.gather = false}); }});
    all.push_back({"cuda_portable", [] { return make_cuda_ops({.portable = true}); }});
  }
  return all;
}

class OpSteps : public testing::TestWithParam<std::tuple<Backend, StepsCase>> {};

void check_steps(const Backend& backend, const StepsCase& c, bool as_one) {
  const auto ops = backend.make();
  Steps steps(*ops, c, as_one);
  const std::vector<Result> results = steps.run();
  steps.expect_right(results);
  // Operations that are not gathered give the same bits whether or not they overlap.
  if (backend.name != "cuda_one_by_one") return;
  const auto patient = make_cuda_ops({.gather = false, .synchronous = true});
  Steps again(*patient, c, as_one);
  EXPECT_TRUE(all_of(again.run()) == all_of(results)) << "a device that waits gives other bits";
}

TEST_P(OpSteps, AttendToWhatStepsStored) {
  check_steps(std::get<Backend>(GetParam()), std::get<StepsCase>(GetParam()), /*as_one=*/false);
}
TEST_P(OpSteps, DoSoAsOneWithWhatArrivesAndResults) {
  check_steps(std::get<Backend>(GetParam()), std::get<StepsCase>(GetParam()), /*as_one=*/true);
}

INSTANTIATE_TEST_SUITE_P(Backends, OpSteps,
                         testing::Combine(testing::ValuesIn(step_backends()),
                                          testing::ValuesIn(kCases)),
                         [](const auto& info) {
                           return std::get<Backend>(info.param).name + "_" +
                                  std::get<StepsCase>(info.param).name;
                         });

}  // namespace
}  // namespace skiff::suite
