#include "ops/cuda/model_fit.h"

#include <cstdint>

#include "base/load_error.h"
#include "ops/cuda/attention/args_of.h"
#include "ops/cuda/mla/attend_kernels.h"
#include "ops/cuda/moe/route.h"
#include "ops/cuda/rows/rows.h"

namespace skiff::cuda {
namespace {

void check_norm(int64_t cols) {
  if (cols > max_norm_cols())
    fail_load("norms of {} elements; the cuda backend takes up to {} on this device", cols,
              max_norm_cols());
}

struct CheckLayer {
  void operator()(const Gqa& m) const {
    if (m.head_dim % 2 != 0 || m.head_dim > kMaxHeadDim)
      fail_load("heads of {} elements; the cuda backend takes even numbers up to {}", m.head_dim,
                kMaxHeadDim);
  }
  void operator()(const Mla& m) const {
    if (m.kv_rank > kMaxLatentRank || m.rope_dim > kMaxLatentRope)
      fail_load("a latent of {} + {} elements; the cuda backend takes up to {} + {}", m.kv_rank,
                m.rope_dim, kMaxLatentRank, kMaxLatentRope);
    check_norm(m.q_rank);
  }
  void operator()(const Dense&) const {}
  void operator()(const Moe& f) const {
    const Router& r = f.router;
    if (r.experts + r.always > kMaxExperts)
      fail_load("{} experts and {} that are always on; the cuda backend takes up to {} together",
                r.experts, r.always, kMaxExperts);
    if (!routes(r))
      fail_load("{} groups for {} experts; the cuda backend takes up to {} equal ones",
                r.groups.count, r.experts, kMaxGroups);
  }
};

}  // namespace

void check_model(const ModelSpec& spec) {
  check_norm(spec.hidden);
  for (const Layer& layer : spec.layers) {
    std::visit(CheckLayer(), layer.mixer);
    std::visit(CheckLayer(), layer.ffn);
  }
}

}  // namespace skiff::cuda
