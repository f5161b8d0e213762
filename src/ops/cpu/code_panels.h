// ops/cpu/code_panels.h -- how a quantized weight lies in memory under Packing::kPanels.
//
// Panels of 16 outputs as in panels.h. A line of 64 bytes is a word of 32 bits for each output:
//   8 bits:  inputs 4i to 4i + 3, the first in the lowest byte: the order that VPDPBUSD and, in
//            groups of 16 lines, TDPBSSD read;
//   4 bits:  inputs 8i to 8i + 7, the even ones in the low half, the odd ones in the high half, so
//            that one shift brings a pair of neighbours to the bottom of both halves.
// The lines of four panels, a band, take turns, so that a row that reads all of them reads memory
// from front to back; the last band of a weight may have two panels.
//
// The inputs that share a scale, a group, begin on a line of their own; what is left of its last
// line has code 0. A weight whose groups are shorter than a product's smallest step (kKStep where
// operands are bf16) meets operands whose groups are spread to that step.
//
// Codes that meet activations of 8-bit integers are made unsigned: 128, or 8, is added to signed
// ones.
//
// Scales and zero points lie behind the codes, [panels][groups][16] in the dtype of the format,
// integer zero points as bf16, which holds them exactly; where outputs share them (block_out is not
// 1) there is one row for each block of outputs instead. Experts follow each other part by part.
#pragma once
#include "ops/cpu/isa/bands.h"
#include "ops/cpu/threadpool.h"
#include "weights/linear.h"

namespace skiff::cpu {

Codes codes_of(DType dtype);

struct CodeShape {
  int64_t experts = 1, out = 0, in = 0;
  WeightFormat format;

  static CodeShape of(const Linear& w);
  int64_t panels() const;  // per expert; even
  int64_t groups() const { return num_blocks(in, format.block_in); }
  int64_t group_size(int64_t group) const;  // inputs; the last group may be shorter
  int64_t group_begin(int64_t group) const { return group * format.block_in; }
  int64_t line_inputs() const { return 32 / bits(format.dtype); }
  // Where the lines of a panel lie, in words from the first one of its expert.
  LinePlace place(int64_t panel) const { return place_of(panel, panels(), panel_words()); }
  // Lines before `group` within a panel; those of a whole panel for groups().
  int64_t line(int64_t group) const;
  int64_t panel_words() const { return line(groups()) * kPanel; }
  int64_t code_bytes() const { return experts * panels() * panel_words() * 4; }

  // Returns whether both factors are integers, whose products are added up exactly.
  bool integers() const;
  int offset() const;  // what is added to codes

  DType zero_dtype() const;  // the type of prepared zero points
  bool shared() const { return format.block_out != 1; }
  int64_t scale_rows() const;  // per expert
  int64_t scale_cols() const;  // numbers in one row
  int64_t scales() const { return experts * scale_rows() * scale_cols(); }
};

// Fills the codes, scales and zero points of `to`, whose tensors lie where prepare() put them.
void pack_codes(const Linear& to, const Linear& plain, const CodeShape& shape, ThreadPool& pool);
// Groups [group, group + groups) of a panel.
struct CodeBlocks {
  int64_t expert = 0, panel = 0, group = 0, groups = 1;
};
// Asks the cache for the scales, or zero points, of some panels of an expert.
void ask_for_scales(const Tensor& scales, const CodeShape& shape, int64_t expert, int64_t panel,
                    int64_t panels);
// Writes the scales, or zero points, of `blocks` as [groups][kPanel] f32.
void load_scales(float* out, const Tensor& scales, const CodeShape& shape, const CodeBlocks& blocks,
                 const Kernels& kernels);

}  // namespace skiff::cpu
