// Computes ahead of any step what the cpu backend allocates for steps.
#include <algorithm>

#include "ops/cpu/attend.h"
#include "ops/cpu/backend.h"

namespace skiff::cpu {
namespace {

constexpr int64_t kFloat = sizeof(float);

void raise(int64_t& to, int64_t value) { to = std::max(to, value); }

}  // namespace

struct CpuOps::ScratchSizes {
  int64_t operand = 0, row_values = 0, inner = 0, outer = 0,
          states = 0;  // bytes, like all members
  int64_t of_thread = 0;
  int64_t draw = 0;  // each thread's list of a row's tokens in order, which sample() allocates
  std::vector<std::pair<Rope, int64_t>> ropes;
};

CpuOps::ScratchSizes CpuOps::scratch_sizes(const StepBounds& bounds) const {
  const ModelSpec& spec = bounds.spec;
  const int64_t rows = bounds.max_rows, hidden = spec.hidden;
  ScratchSizes sizes;
  // A float32 weight among bf16 ones, such as a router's, needs rows of floats.
  const auto operand = [&](int64_t n, int64_t in, DType weight) {
    const PanelShape shape{.in = in, .dtype = weight};
    return n * operand_stride(shape) * static_cast<int64_t>(bytes(operand_dtype(shape)));
  };
  const auto thread = [&](int64_t floats) { raise(sizes.of_thread, floats * kFloat); };
  const auto quantized = [&](int64_t n, int64_t in, const WeightFormat& format) {
    const Operand a = code_operand({.in = in, .format = format}, bounds.act);
    raise(sizes.operand, n * a.stride * a.width);
    raise(sizes.row_values, n * a.value_stride * kFloat);
    thread(2 * in);
  };
  const auto linear = [&](int64_t n, int64_t in) {
    raise(sizes.operand, operand(n, in, bounds.act));
    for (const WeightFormat& format : bounds.formats) quantized(n, in, format);
  };
  thread(std::max(task_floats(), bounds.formats.empty() ? 0 : code_task_floats()));
  thread(2 * hidden);
  linear(bounds.max_logit_rows, hidden);
  linear(rows, hidden);
  if (spec.joins) linear(rows, std::max(2, spec.join_rows) * hidden);
  const auto dense = [&](int64_t width) {
    linear(rows, width);
    thread(3 * width);
  };
  const auto rope = [&](const Rope& turned) {
    if (std::ranges::find(sizes.ropes, turned, &std::pair<Rope, int64_t>::first) ==
        sizes.ropes.end())
      sizes.ropes.emplace_back(turned, rows * turned.dim * kFloat);
  };
  const auto attend = [&](const AttendScratch& scratch) {
    thread(scratch.workspace);
    raise(sizes.states, scratch.states * kFloat);
  };
  const auto gqa = [&](const Gqa& m) {
    const int64_t q = int64_t{m.heads} * m.head_dim;
    linear(rows, q);
    thread(q + int64_t{m.kv_heads} * m.head_dim);
    attend(attend_scratch(shape_of(m), pool_.threads(), bounds.max_context,
                          kernels_.attend_tiles != nullptr));
    rope(m.rope);
  };
  const auto mla = [&](const Mla& m) {
    const int64_t copies = std::min(rows, kHeadTokens) * m.heads;
    if (m.q_rank > 0) linear(rows, m.q_rank);
    thread(std::max(m.q_rank, m.cached_dim()));
    for (const int in : {m.nope_dim, m.kv_rank})
      raise(sizes.operand, operand(copies, in, bounds.act));
    linear(rows, int64_t{m.heads} * m.v_dim);
    attend(attend_scratch(shape_of(m), pool_.threads(), bounds.max_context, false));
    rope(m.rope);
  };
  for (const Layer& layer : spec.layers) {
    if (const auto* m = std::get_if<Gqa>(&layer.mixer)) gqa(*m);
    if (const auto* m = std::get_if<Mla>(&layer.mixer)) mla(*m);
    if (const auto* ffn = std::get_if<Dense>(&layer.ffn)) {
      dense(ffn->width);
      continue;
    }
    const auto& moe = std::get<Moe>(layer.ffn);
    const int64_t routed = rows * moe.sharers;
    const int64_t copies = std::min(routed, kExpertTokens) * moe.router.most_per_token();
    raise(sizes.operand, operand(routed, hidden, DType::kF32));
    linear(copies, hidden);
    raise(sizes.inner, copies * 2 * moe.width * kFloat);
    linear(copies, moe.width);
    raise(sizes.outer, copies * hidden * kFloat);
    if (moe.shared_width > 0) dense(moe.shared_width);
  }
  sizes.draw = spec.vocab * static_cast<int64_t>(sizeof(int32_t) + sizeof(double));
  return sizes;
}

size_t CpuOps::scratch_bytes(const StepBounds& bounds) const {
  const ScratchSizes sizes = scratch_sizes(bounds);
  int64_t sum = sizes.operand + sizes.row_values + sizes.inner + sizes.outer + sizes.states +
                pool_.threads() * (sizes.of_thread + sizes.draw);
  for (const auto& [rope, size] : sizes.ropes) sum += size;
  return static_cast<size_t>(sum);
}

void CpuOps::reserve(const StepBounds& bounds) {
  const ScratchSizes sizes = scratch_sizes(bounds);
  const auto reserve = [](Scratch& scratch, int64_t size) {
    scratch.reserve(static_cast<size_t>(size));
  };
  reserve(operand_, sizes.operand);
  reserve(row_values_, sizes.row_values);
  reserve(inner_, sizes.inner);
  reserve(outer_, sizes.outer);
  reserve(states_, sizes.states);
  for (Scratch& scratch : thread_scratch_) reserve(scratch, sizes.of_thread);
  for (const auto& [rope, size] : sizes.ropes) reserve(rope_table(rope).values, size);
}

size_t CpuOps::scratch_held() const {
  size_t sum =
      operand_.held() + row_values_.held() + inner_.held() + outer_.held() + states_.held();
  for (const Scratch& scratch : thread_scratch_) sum += scratch.held();
  for (const RopeTable& table : rope_tables_) sum += table.values.held();
  return sum;
}

}  // namespace skiff::cpu
