#include "ops/cpu/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <limits>

#include "base/check.h"

namespace skiff::cpu {
namespace {

// Bits of CPUID leaf 7 (Intel SDM vol. 2A, CPUID), which GCC 12's __builtin_cpu_supports lacks.
struct Leaf7 {
  bool amx_bf16 = false, amx_tile = false, amx_int8 = false, avx512_bf16 = false,
       avx512_vnni = false, avx512_vbmi = false;
};

Leaf7 leaf7() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  Leaf7 out;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return out;
  out.avx512_vbmi = c >> 1 & 1;
  out.avx512_vnni = c >> 11 & 1;
  out.amx_bf16 = d >> 22 & 1;
  out.amx_tile = d >> 24 & 1;
  out.amx_int8 = d >> 25 & 1;
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) out.avx512_bf16 = a >> 5 & 1;
  return out;
}

// Linux grants the tile state on request only (Documentation/arch/x86/xstate.rst).
bool permit_amx() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Isa detect() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::kBaseline;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return Isa::kAvx2;
  const Leaf7 more = leaf7();
  if (!more.avx512_vnni) return Isa::kAvx512;
  if (!more.avx512_bf16 || !more.avx512_vbmi) return Isa::kAvx512Vnni;
  const bool amx = more.amx_bf16 && more.amx_tile && more.amx_int8 && permit_amx();
  return amx ? Isa::kAmx : Isa::kAvx512Bf16;
}

}  // namespace

Isa best_isa() {
  static const Isa isa = detect();
  return isa;
}

std::vector<Isa> available_isas() {
  std::vector<Isa> out;
  for (int i = 0; i <= static_cast<int>(best_isa()); ++i) out.push_back(static_cast<Isa>(i));
  return out;
}

Kernels kernels_for(Isa isa) {
  SKIFF_CHECK(isa <= best_isa(), "this machine lacks instruction set {}", static_cast<int>(isa));
  if (isa == Isa::kBaseline) return kKernelsBaseline;
  if (isa == Isa::kAvx2) return kKernelsAvx2;
  Kernels k = kKernelsAvx512;
  k.isa = isa;
  if (isa == Isa::kAvx512) return k;
  k.name = "avx512vnni";
  k.int_rows = int_rows_avx512vnni;
  k.write_integers = write_integers_avx512vnni;
  k.int_bytes = 1;
  if (isa == Isa::kAvx512Vnni) return k;
  k.bf16_operand = true;
  k.name = isa == Isa::kAmx ? "amx" : "avx512bf16";
  const bool intel = __builtin_cpu_is("intel") != 0;
  k.expand_bf16 = intel ? expand_avx512bf16_intel : expand_avx512bf16;
  if (isa == Isa::kAvx512Bf16) {
    k.gemm_bf16 = gemm_bf16_avx512bf16;
    k.code_rows_bf16 = intel ? few_rows_avx512bf16_intel : few_rows_avx512bf16;
    k.code_rows_at_once = kFewRowsBf16;
    // Twice as many rows read the panels twice, the second time from the cache.
    k.most_code_rows = 2 * kFewRowsBf16;
    return k;
  }
  k.gemm_bf16 = gemm_bf16_amx;
  k.block_rows = 256;
  k.block_panels = 32;
  k.code_rows_bf16 = code_rows_amx;
  k.code_rows_at_once = k.most_code_rows = std::numeric_limits<int>::max();
  k.int_rows = int_rows_amx;
  k.attend_tiles = attend_amx;
  return k;
}

}  // namespace skiff::cpu
