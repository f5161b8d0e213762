#include "ops/cuda/quant/direct_call.h"

#include <bit>

#include "base/check.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/quant/atom_call.h"
#include "ops/cuda/quant/direct_atoms.cuh"
#include "ops/cuda/quant/direct_float8.h"

namespace skiff::cuda::direct {
namespace {

// Calls f(kernel, codes, groups, gated) for every kernel.
template <class F>
void for_each_kernel(F f) {
  const auto with = [&]<Codes kCodes, int kGroups>() {
    f(direct_kernel<kCodes, kGroups, false>, kCodes, kGroups, false);
    f(direct_kernel<kCodes, kGroups, true>, kCodes, kGroups, true);
  };
  with.template operator()<Codes::kFour, 0>();
  with.template operator()<Codes::kFour, 1>();
  with.template operator()<Codes::kEight, 0>();
  with.template operator()<Codes::kEight, 1>();
}

bool is_float8(const Linear& w) { return is_float8_rows(w) || is_float8_channels(w); }

int chunks_of(int64_t in) { return static_cast<int>((in + kAtomWidth - 1) / kAtomWidth); }

void start_atoms(const Linear& w, const DirectArgs& args, bool gated, const Launch& how) {
  const AtomFormat format = atoms::format_of(w);
  bool started = false;
  for_each_kernel([&](auto kernel, Codes codes, int groups, bool of_gate) {
    if (codes != format.codes || groups != format.groups || of_gate != gated) return;
    launch(kernel, how, args, atoms::args_of(w));
    started = true;
  });
  SKIFF_CHECK(started, "no kernel for {}", describe(w.format));
}

}  // namespace

void allow_direct_kernels() {
  for_each_kernel([](auto kernel, Codes codes, int, bool) {
    allow_shared(kernel, shared_bytes(division_of(codes), kMostXBytes));
  });
  allow_float8_direct_kernels();
}

bool takes(const Linear& w, int64_t rows) {
  if (is_float8(w)) return rows <= kMostFloat8Rows;
  const std::optional<AtomFormat> f = atom_format(w.format);
  return f && !f->zeros && f->groups <= 1 && rows <= most_rows(f->groups) && !changes_rows(w) &&
         (f->codes == Codes::kFour || f->codes == Codes::kEight);
}

bool fits(int64_t rows, int64_t in) {
  return in % 8 == 0 && scaled_x_bytes(rows, chunks_of(in)) <= kMostXBytes;
}

bool rounds(const Linear& w, int64_t rows) {
  return is_float8(w) && rows * chunks_of(inputs(w)) <= kMostRounded;
}

void start_direct(const Linear& w, DirectArgs args, bool gated, const MetRows& met,
                  int multiprocessors, cudaStream_t stream) {
  args.chunks = chunks_of(args.in);
  args.pitch = pitch_of(args.chunks);
  const int height = kAtomHeight * (gated ? 1 : 2);
  args.pairs = (args.features + height - 1) / height;
  if (args.jobs.expert == nullptr) args.jobs.capacity = 1;
  const int items = args.pairs * args.jobs.capacity;
  const Division division = is_float8(w) ? kFloat8Division : division_of(atoms::format_of(w).codes);
  const int blocks = std::min(items, division.blocks * multiprocessors);
  const auto split = static_cast<unsigned>(split_of(items, args.chunks, blocks, division.warps));
  args.log_split = std::countr_zero(split);
  const Launch how = {.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(static_cast<unsigned>(division.warps) * 32),
                      .shared = shared_bytes(division, scaled_x_bytes(args.rows, args.chunks)),
                      .stream = stream};
  if (is_float8(w))
    start_float8_direct(w, args, gated, met, how);
  else
    start_atoms(w, args, gated, how);
}

}  // namespace skiff::cuda::direct
