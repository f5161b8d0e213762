#include "ops/cuda/quant/direct_call.h"

#include <bit>
#include <optional>

#include "base/check.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/quant/atom_call.h"
#include "ops/cuda/quant/direct_atoms.cuh"
#include "ops/cuda/quant/direct_float8.h"

namespace skiff::cuda::direct {
namespace {

// Calls f(kernel, codes, groups, gated, division) for every kernel.
template <class F>
void for_each_kernel(F f) {
  const auto with = [&]<Codes kCodes, int kGroups, int kWarps, int kRing>() {
    constexpr Division kDivision = {kWarps, kRing};
    f(direct_kernel<kCodes, kGroups, false, kWarps, kRing>, kCodes, kGroups, false, kDivision);
    f(direct_kernel<kCodes, kGroups, true, kWarps, kRing>, kCodes, kGroups, true, kDivision);
  };
  const auto of_codes = [&]<Codes kCodes>() {
    constexpr Division kAlone = division_of(kCodes), kBeside = beside_of(kCodes);
    with.template operator()<kCodes, 0, kAlone.warps, kAlone.ring_bytes>();
    with.template operator()<kCodes, 1, kAlone.warps, kAlone.ring_bytes>();
    with.template operator()<kCodes, 0, kBeside.warps, kBeside.ring_bytes>();
  };
  of_codes.template operator()<Codes::kFour>();
  of_codes.template operator()<Codes::kEight>();
}

bool is_float8(const Linear& w) { return is_float8_rows(w) || is_float8_channels(w); }

int chunks_of(int64_t in) { return static_cast<int>((in + kAtomWidth - 1) / kAtomWidth); }

Division division_alone(const Linear& w) {
  return is_float8(w) ? kFloat8Division : division_of(atoms::format_of(w).codes);
}
// How a product is divided beside other products, whose items are divided among so many warps.
std::optional<Division> division_beside(const Linear& w, int split) {
  if (is_float8(w) || atoms::format_of(w).groups > 0 || split > kBesideWarps) return {};
  return beside_of(atoms::format_of(w).codes);
}

void start_atoms(const Linear& w, const DirectArgs& args, bool gated, const Division& as,
                 const Launch& how) {
  const AtomFormat format = atoms::format_of(w);
  bool started = false;
  for_each_kernel([&](auto kernel, Codes codes, int groups, bool of_gate, const Division& is) {
    if (codes != format.codes || groups != format.groups || of_gate != gated || is != as) return;
    launch(kernel, how, args, atoms::args_of(w));
    started = true;
  });
  SKIFF_CHECK(started, "no kernel for {}", describe(w.format));
}

}  // namespace

void allow_direct_kernels() {
  for_each_kernel([](auto kernel, Codes, int, bool, const Division& division) {
    allow_shared(kernel, shared_bytes(division, kMostXBytes));
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
                  int multiprocessors, cudaStream_t stream, bool beside) {
  args.chunks = chunks_of(args.in);
  args.pitch = pitch_of(args.chunks);
  const int height = kAtomHeight * (gated ? 1 : 2);
  args.pairs = (args.features + height - 1) / height;
  if (args.jobs.expert == nullptr) args.jobs.capacity = 1;
  const int items = args.pairs * args.jobs.capacity;
  const int blocks = std::min(items, multiprocessors);
  const Division alone = division_alone(w);
  const int split = split_of(items, args.chunks, blocks, alone.warps);
  args.log_split = std::countr_zero(static_cast<unsigned>(split));
  // Sums are added up in the same order wherever the product runs.
  const Division division = (beside ? division_beside(w, split) : std::nullopt).value_or(alone);
  const Launch how = {.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(static_cast<unsigned>(division.warps) * 32),
                      .shared = shared_bytes(division, scaled_x_bytes(args.rows, args.chunks)),
                      .stream = stream};
  if (is_float8(w))
    start_float8_direct(w, args, gated, met, how);
  else
    start_atoms(w, args, gated, division, how);
}

}  // namespace skiff::cuda::direct
