// ops/cpu/backend.h -- the cpu backend. Methods are grouped in files by kind; inner loops are in
// isa/. Work is cut into tasks that write different elements, so neither the number of threads
// nor their order shows in a result.
#pragma once
#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "ops/cpu/attend.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/panels.h"
#include "ops/cpu/quantized.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/threadpool.h"
#include "ops/host_ops.h"

namespace skiff::cpu {

// The left operand of a GEMM.
struct Operand {
  const void* data = nullptr;
  int64_t stride = 0;  // elements
  // The members below are used for quantized weights only.
  bool narrow = false;            // bf16; else f32, unless these are integers
  bool integers = false;          // as Kernels::write_integers() writes them
  int64_t width = 4;              // bytes of an element
  int64_t step = 1;               // inputs of a span are a multiple of this
  const float* values = nullptr;  // for each row its scales, then the sums of its groups, if needed
  int64_t value_stride = 0;
};

// Rows [row, row + rows) of an operand are multiplied by one expert of a weight.
struct Group {
  int64_t row = 0, rows = 0;
  int64_t expert = 0;
};

class CpuOps final : public HostOps {
 public:
  // Tokens whose inner activations experts() holds at once.
  static constexpr int64_t kExpertTokens = 1024;

  // Tokens whose heads heads_linear() multiplies at once.
  static constexpr int64_t kHeadTokens = 256;

  explicit CpuOps(const CpuOptions& options);

  std::string_view name() const override { return "cpu"; }
  std::string arithmetic() const override;
  size_t scratch_bytes(const StepBounds& bounds) const override;
  void reserve(const StepBounds& bounds) override;
  size_t scratch_held() const;  // bytes allocated for scratch so far
  size_t prepared_bytes(const WeightShape& shape, const WeightFormat& keep) const override;

  bool multiplies(const WeightFormat& format) const override;
  void quantize(const Linear& q, Tensor plain, QuantRule rule) override;
  Linear prepare(const Linear& plain, const WeightFormat& keep, Buffer* owner) override;
  void begin_step(const RaggedBatch& batch, std::span<const Arrival> arrivals) override;

  void embed(Tensor out, Tensor table, Tensor ids) override;
  void add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm) override;
  void linear(Tensor out, Tensor x, const Linear& w) override;
  void gqa_store(Tensor qkv, const Norm& q, const Norm& k, const Gqa& spec,
                 const RaggedBatch& batch, const KvLayer& kv) override;
  void gqa_attend(Tensor out, Tensor q, const Gqa& spec, const RaggedBatch& batch,
                  const KvLayer& kv) override;
  void heads_linear(Tensor out, Tensor x, const Linear& w) override;
  void mla_store(Tensor q, Tensor kv, const Norm& norm, const Mla& spec, const RaggedBatch& batch,
                 const KvLayer& cache) override;
  void mla_attend(Tensor out, Tensor q_latent, Tensor q_rope, const Mla& spec,
                  const RaggedBatch& batch, const KvLayer& cache) override;
  void gated_act(Tensor out, Tensor gate_up, Act act) override;
  Routing route(Tensor logits, Tensor bias, const Router& router, Arena& arena) override;
  void experts(Tensor out, Tensor x, const Routing& routing, const Linear& gate_up,
               const Linear& down, Act act, Arena& arena) override;
  void add(Tensor out, Tensor x) override;
  void relu(Tensor x) override;
  void gather_rows(Tensor out, Tensor x, Tensor rows) override;

  void edit_logits(Tensor logits, const EditPages& pages, const LogitEdits& edits) override;
  void mask_logits(Tensor logits, Tensor rows, Tensor allowed) override;
  void penalize(Tensor logits, const SeenTokens& seen, const Penalties& penalties) override;
  void sample(Tensor out_ids, Tensor logits, const SampleBatch& batch) override;
  void draw_logprobs(Tensor logits, const SampleBatch& batch) override;
  void check_drafts(Tensor ids, Tensor target, Tensor draft, const DraftChecks& checks) override;
  void logprobs(Tensor chosen_logprob, Tensor chosen_rank, Tensor top_ids, Tensor top_logprobs,
                Tensor logits, Tensor chosen) override;

 private:
  // Calls f(first row, last row + 1, thread) for pieces of `rows` that are large enough for a
  // thread each.
  template <class F>
  void parallel_rows(int64_t rows, int64_t cols, F f) {
    constexpr int64_t kGrain = 8192;  // elements
    const int64_t piece = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, cols));
    pool_.parallel_for((rows + piece - 1) / piece, [&](int64_t task, int thread) {
      f(task * piece, std::min(rows, (task + 1) * piece), thread);
    });
  }

  // The result of one task of a GEMM. Its rows are padded like those of operands.
  int64_t task_floats() const {
    return int64_t{kernels_.block_rows} * (kernels_.block_panels + 1) * kPanel;
  }
  // A task of a GEMM with codes holds its result, a pair of panels' sums, their scales and minima,
  // and the values of their codes.
  static constexpr int64_t kScaleGroups = 32;  // groups whose scales a task holds at once
  int64_t code_scales() const { return kScaleGroups * kernels_.block_panels * kPanel; }
  int64_t code_task_floats() const {
    return task_floats() + int64_t{kernels_.block_rows} * 2 * kPanel + 2 * code_scales() +
           kSpan * 2 * kPanel;
  }
  // Rows of operands are padded by a cache line or more, so that equal columns of neighbouring rows
  // do not compete for the same cache sets when the length of a row is a power of two.
  static constexpr int64_t kRowPadding = 32;

  // The left operand in the form that the GEMM kernel reads: the rows of `groups`, each row r of
  // `x`, or its row (*pick)(r). A few rows that are right already are not copied. `act` is the
  // dtype of the step's activations, to which those of `x` may be rounded.
  Operand operand(const Tensor& x, DType act, std::span<const Group> groups, const Linear& w,
                  const std::function<int64_t(int64_t)>* pick);
  // The form of the operand of a quantized weight, without its rows.
  Operand code_operand(const CodeShape& shape, DType act) const;
  Operand integer_operand(const CodeShape& shape) const;
  Operand quantized_operand(const Tensor& x, DType act, std::span<const Group> groups,
                            const Linear& w, const std::function<int64_t(int64_t)>* pick);
  void round_input(float* x, float* scales, const CodeShape& shape, float fixed) const;
  // Where one row of an operand goes, and two rows of scratch, the first with its values.
  struct CodeRow {
    std::byte* row;
    float* values;
    float *x, *spare;
  };
  void fill_row(CodeRow to, const Operand& a, const Linear& w, int64_t expert) const;
  void fill_floats(const CodeRow& to, const Operand& a, const CodeShape& shape) const;
  void fill_integers(const CodeRow& to, const Operand& a, const CodeShape& shape) const;
  // CHECKs that prepare() made `w`.
  void check_prepared(const Linear& w) const;
  DType operand_dtype(const PanelShape& shape) const;
  int64_t operand_stride(const PanelShape& shape) const;

  // finish(row, first column, values f32, count) gets every element exactly once and may change the
  // values.
  using Finish = std::function<void(int64_t, int64_t, float*, int64_t)>;
  void product(std::span<const Group> groups, const Operand& a, const Linear& w,
               const Finish& finish);
  // A piece of a product: rows of one group times a few panels.
  struct Task {
    const Group* group;
    int64_t row, rows;
    int64_t panel;
    int panels;
  };
  // The most rows and panels of a task.
  struct Block {
    int64_t rows;
    int panels;
  };
  // Tasks have from `narrowest` to `widest` panels, but for the last ones of a weight: the latter
  // divided by a power of two.
  std::vector<Task> tasks_of(std::span<const Group> groups, int64_t panels, int narrowest,
                             int widest) const;
  struct CodeTask;
  void code_product(std::span<const Group> groups, const Operand& a, const Linear& w,
                    const Finish& finish);
  // A kernel that multiplies up to `rows` rows at once; null where there is none.
  struct RowsKernel {
    void (*multiply)(const CodeRows&) = nullptr;
    int64_t rows = 0;
  };
  RowsKernel rows_kernel(const Operand& a, int64_t rows) const;
  void code_rows(const CodeTask& t, const RowsKernel& kernel) const;
  void many_code_rows(const CodeTask& t, int first) const;
  void load_code_scales(const CodeTask& t, int first, int count, int64_t group,
                        int64_t groups) const;
  void code_span(const CodeTask& t, const Span& span, int first, int count) const;
  void close_sum(const CodeTask& t, const Span& span, int first, int count, bool opens) const;
  void attend(const AttendCall& call, const RaggedBatch& batch, const KvLayer& kv);
  // out = act(gate) * up.
  void activate(float* out, const float* gate, const float* up, int64_t n, Act act) const;
  struct ExpertCall;
  struct Copies;
  static Copies copies_of(const ExpertCall& call, int64_t begin, int64_t end);
  const float* multiply_copies(const ExpertCall& call, const Copies& copies);
  void expert_chunk(const ExpertCall& call, int64_t begin, int64_t end);

  // Bytes of each Scratch below for the largest step.
  struct ScratchSizes;
  ScratchSizes scratch_sizes(const StepBounds& bounds) const;

  Kernels kernels_;
  ThreadPool pool_;
  std::vector<Scratch> thread_scratch_;  // one per thread
  Scratch operand_, row_values_, inner_, outer_, states_;

  struct RopeTable {
    Rope rope;
    Scratch values;
    bool valid = false;  // valid for the step that began last
  };
  std::vector<RopeTable> rope_tables_;
  RopeTable& rope_table(const Rope& rope);
  // Returns the cosines, then the sines, for each token of this step: [tokens][dim].
  const float* rope_values(const Rope& rope, const RaggedBatch& batch);
};

}  // namespace skiff::cpu
