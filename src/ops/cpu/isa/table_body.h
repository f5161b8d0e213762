// ops/cpu/isa/table_body.h -- the table of one instruction set. Include after one vec_<isa>.h.
#pragma once
#include "ops/cpu/isa/codes_body.h"
#include "ops/cpu/isa/gemm_body.h"
#include "ops/cpu/isa/int_body.h"
#include "ops/cpu/isa/rows_body.h"
// attend_body.h uses both of the above.
#include "ops/cpu/isa/attend_body.h"

namespace skiff::cpu {
namespace {

constexpr Kernels table(Isa isa, const char* name) {
  return {.isa = isa,
          .name = name,
          .bf16_operand = false,
          .block_rows = kTaskRows,
          .block_panels = kTaskPanels,
          .gemm_f32 = gemm_f32,
          .gemm_bf16 = gemm_bf16,
          .expand_f32 = expand,
          .expand_bf16 = nullptr,
          .few_rows_f32 = few_rows,
          .code_rows_bf16 = nullptr,
          .code_rows_at_once = 0,
          .most_code_rows = 0,
          .scaled_sum = scaled_sum,
          .write_integers = write_integers,
          .int_bytes = 2,
          .int_rows = int_rows,
          .max_abs = max_abs,
          .round_integers = round_integers,
          .round_e4m3 = round_e4m3,
          .pack_panel = pack_panel,
          .load_kv = load_kv,
          .attend = attend,
          .attend_tiles = nullptr,
          .bf16_to_f32 = bf16_to_f32,
          .f16_to_f32 = f16_to_f32,
          .f32_to_bf16 = f32_to_bf16,
          .add = add,
          .add_scaled = add_scaled,
          .sum_squares = sum_squares,
          .scale = scale,
          .silu_mul = silu_mul,
          .exp = exp,
          .max = max};
}

}  // namespace
}  // namespace skiff::cpu
