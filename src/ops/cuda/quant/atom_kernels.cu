#include "ops/cuda/quant/atom_kernels.h"

#include "base/check.h"

namespace skiff::cuda::atoms {
namespace {

template <Codes kOfCodes, int kOfGroups>
struct Kind {
  static constexpr Codes kCodes = kOfCodes;
  static constexpr int kGroups = kOfGroups;
};

// Calls f(kind) for each kind of kernels.
template <class F>
void for_each_kind(F f) {
  f(Kind<Codes::kFour, 0>{}), f(Kind<Codes::kFour, 1>{});
  f(Kind<Codes::kFour, 2>{}), f(Kind<Codes::kFour, 4>{});
  f(Kind<Codes::kEight, 0>{}), f(Kind<Codes::kEight, 4>{});
  f(Kind<Codes::kFloat8, 0>{}), f(Kind<Codes::kFloat8, 1>{});
  f(Kind<Codes::kFloat8Held, 1>{});
}

}  // namespace

void allow_all_atom_kernels() {
  for_each_kind([](auto kind) { allow_atom_kernels<kind.kCodes, kind.kGroups>(); });
}

// With e4m3 rows sums are scaled chunk by chunk, whether the weight's own scales are of rows or
// not.
void start_atoms(const AtomFormat& format, const AtomLaunch& how, const CUtensorMap& x,
                 const streamed::StreamArgs& args, const AtomArgs& atoms) {
  const int groups = format.codes == Codes::kFloat8Held ? 1 : format.groups;
  bool started = false;
  for_each_kind([&](auto kind) {
    if (kind.kCodes != format.codes || kind.kGroups != groups) return;
    start_atoms_of<kind.kCodes, kind.kGroups>(how, x, args, atoms);
    started = true;
  });
  SKIFF_CHECK(started, "no kernels for {} groups", groups);
}

}  // namespace skiff::cuda::atoms
