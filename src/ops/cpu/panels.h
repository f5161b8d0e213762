// ops/cpu/panels.h -- how a weight lies in memory under Packing::kPanels.
//
// A weight [out, in] is cut into panels of 16 outputs, the last ones filled up with zeros to a
// whole pair of panels. Within a panel one line of 64 bytes holds all 16 outputs:
//   f32:  [out/16][in][16]             line i is input i;
//   bf16: [out/16][in/2][16][2]        line i is inputs 2i and 2i+1 of each output, in filled up
//                                      with zeros to a multiple of 32.
// The bf16 order is the one that VDPBF16PS and, in groups of 16 lines, TDPBF16PS read. A GEMM
// walks every panel once from front to back. Experts of a stack follow each other, each a weight
// of its own.
#pragma once
#include "ops/cpu/isa/kernels.h"
#include "ops/cpu/threadpool.h"
#include "weights/linear.h"

namespace skiff::cpu {

struct PanelShape {
  int64_t experts = 1, out = 0, in = 0;
  DType dtype = DType::kF32;  // kF32 or kBF16

  // The shape of a weight once its panels hold `dtype`, and that of a packed weight.
  static PanelShape of(const Linear& w, DType dtype);
  static PanelShape of(const Linear& w) { return of(w, w.format.dtype); }
  int64_t k() const;       // inputs with padding
  int64_t panels() const;  // per expert; even
  int64_t panel_elements() const { return k() * kPanel; }
  int64_t expert_bytes() const;
  int64_t total_bytes() const { return experts * expert_bytes(); }
};

// Fills `to` (total_bytes() at a multiple of 64) from `plain`, f32, f16 or bf16 of that shape.
void pack_panels(std::byte* to, const Linear& plain, const PanelShape& shape,
                 const Kernels& kernels, ThreadPool& pool);

}  // namespace skiff::cpu
