#include "ops/cpu/panels.h"

#include <algorithm>
#include <cstring>

#include "base/round_up.h"
#include "ops/cpu/rows.h"

namespace skiff::cpu {
namespace {

constexpr int64_t kChunk = 512;  // inputs staged at a time

// A chunk of kPanel rows in the packed dtype, padded with zeros.
struct Stage {
  alignas(64) std::byte rows[kPanel][kChunk * 4];
};

}  // namespace

PanelShape PanelShape::of(const Linear& w, DType dtype) {
  const auto& dim = w.weight.dim;
  if (w.experts == 0) {
    SKIFF_CHECK(dim[2] == 1 && dim[3] == 1, "a stack of weights that does not say so");
    return {1, dim[0], dim[1], dtype};
  }
  SKIFF_CHECK_EQ(w.experts, dim[0]);
  SKIFF_CHECK_EQ(dim[3], 1);
  return {dim[0], dim[1], dim[2], dtype};
}

int64_t PanelShape::k() const { return dtype == DType::kF32 ? in : round_up(in, kKStep); }
int64_t PanelShape::panels() const { return round_up(out, int64_t{2} * kPanel) / kPanel; }
int64_t PanelShape::expert_bytes() const {
  return panels() * panel_elements() * static_cast<int64_t>(bytes(dtype));
}

void pack_panels(std::byte* to, const Linear& plain, const PanelShape& shape,
                 const Kernels& kernels, ThreadPool& pool) {
  const DType dtype = plain.weight.dtype;
  const auto from = static_cast<int64_t>(bytes(dtype));
  const auto width = static_cast<int64_t>(bytes(shape.dtype));
  const auto* source = static_cast<const std::byte*>(plain.weight.data);
  const int64_t units = width * kPanel;  // bytes of one input in a panel

  pool.parallel_for(shape.experts * shape.panels(), [&](int64_t task, int) {
    const int64_t expert = task / shape.panels(), panel = task % shape.panels();
    std::byte* dst = to + task * shape.panel_elements() * width;
    Stage stage;
    for (int64_t i = 0; i < shape.k(); i += kChunk) {
      const int64_t padded = std::min(kChunk, shape.k() - i);
      const int64_t real = std::max<int64_t>(0, std::min(padded, shape.in - i));
      const uint32_t* rows[kPanel];
      for (int j = 0; j < kPanel; ++j) {
        const int64_t o = panel * kPanel + j;
        const std::byte* src = source + ((expert * shape.out + o) * shape.in + i) * from;
        const bool direct = o < shape.out && real == padded && dtype == shape.dtype;
        rows[j] = reinterpret_cast<const uint32_t*>(direct ? src : stage.rows[j]);
        if (direct) continue;
        const int64_t n = o < shape.out ? real : 0;
        copy_row(kernels, stage.rows[j], shape.dtype, src, dtype, n);
        std::memset(stage.rows[j] + n * width, 0, static_cast<size_t>((padded - n) * width));
      }
      kernels.pack_panel(reinterpret_cast<uint32_t*>(dst + i * units), rows, padded * width / 4);
    }
  });
}

}  // namespace skiff::cpu
