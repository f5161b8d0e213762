// ops/cpu/isa/kernels.h -- the inner loops of the cpu backend: one table per instruction set.
//
// Files of this folder named NAME_<isa>.cc are compiled with that set's flags. They include
// nothing but intrinsics and headers of this folder, whose code lives in anonymous namespaces:
// an inline function with external linkage could be picked by the linker for the whole program
// and then run on a machine that lacks the instructions.
//
// Every kernel computes an output element in an order that depends only on the reduced length,
// never on how many rows or columns one call covers.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace skiff::cpu {

// Each includes those before it. kAvx512Bf16 also has VBMI, which one processor with bf16 lacks.
enum class Isa : uint8_t { kBaseline, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmx };

constexpr int kPanel = 16;    // output columns in one panel of a packed weight (panels.h)
constexpr int kBand = 4;      // panels of codes whose lines take turns in memory (code_panels.h)
constexpr int kKStep = 32;    // bf16 panels are zero-padded to a multiple of this many inputs
constexpr int kKvBlock = 64;  // context positions per step of the online softmax
// Rows and panels in one task of a product, unless Kernels says otherwise.
constexpr int kTaskRows = 128, kTaskPanels = 8;

// c[r][p*16 + j] = sum over i of a[r][i] * panel p [i][j].
struct GemmBlock {
  const void* a = nullptr;  // [rows][lda] f32 or bf16, see Kernels::bf16_operand
  int64_t lda = 0;          // elements
  int64_t rows = 0;
  const void* b = nullptr;   // first panel
  int64_t panel_stride = 0;  // elements from one panel to the next
  int panels = 0;            // even; a weight is padded to whole pairs of panels
  int64_t k = 0;             // inputs; for bf16 a multiple of kKStep
  float* c = nullptr;        // [rows][ldc]
  int64_t ldc = 0;
  bool add = false;  // c holds sums over earlier inputs, which are continued
};

// The elements of quantized panels (code_panels.h).
enum class Codes : uint8_t { kI8, kU8, kF8E4M3, kI4, kU4, kF4E2M1 };
constexpr bool is_nibble(Codes codes) { return codes >= Codes::kI4; }

// Lines of one panel.
struct CodeLines {
  const uint32_t* first = nullptr;
  int64_t step = 0;  // words from one line to the next
  int64_t count = 0;
};

// How floats are rounded to codes: ties to even, or away from zero.
enum class Ties : uint8_t { kEven, kAway };

// Consecutive inputs of a product with codes whose products make one sum: they share the scale of a
// group of the weight, and that of the activations where those are rounded.
struct CodeSum {
  int64_t begin = 0;            // the first input within the operand
  int64_t line = 0, lines = 0;  // within a panel
  int64_t group = 0;            // whose scales multiply the sum
  int64_t value = 0;            // the number of the row that belongs to it
  int64_t inputs = 0;           // for integers, the number that is the sum of the row's inputs
};

// Rows times codes, whose values exist in registers only: c[r][p*16 + j] is the total over some
// sums, each multiplied and added as ScaledSum says. Where activations are floats, rows are few,
// and inputs are added up in the order in which a GEMM of their values adds them, so the bits are
// the same; where they are integers, sums are exact.
constexpr int kFewRows = 4, kFewRowsBf16 = 8, kFewRowsAmx = 2;
struct CodeRows {
  const void* a = nullptr;  // [rows][lda] f32, bf16, or what write_integers() wrote
  int64_t lda = 0;
  int rows = 0;  // at most kFewRows, or code_rows_at_once for bf16; any number for integers
  const uint32_t* b = nullptr;  // the first band
  int64_t panel_words = 0;      // the size of one panel
  int panels = 0;               // an even number, of whole bands
  Codes codes = Codes::kI8;
  int offset = 0;  // for integers, what was added to codes to make them unsigned
  const CodeSum* sums = nullptr;
  int64_t count = 0;
  // [panels][groups][kPanel]; the first group is that of the first sum.
  const float* scale = nullptr;
  const float* minimum = nullptr;  // may be absent
  int64_t groups = 0;
  // [rows][value_stride]; with minima a row's sums of its inputs, else its scales, or absent; for
  // integers both.
  const float* values = nullptr;
  int64_t value_stride = 0;
  float* c = nullptr;  // [rows][ldc]
  int64_t ldc = 0;
  bool first = false;  // c holds nothing yet
};

// c[r][j] (+)= part[r][j] * scale[j] * row_scale[r] - row_sum[r] * minimum[j], for pairs of panels.
// Multiplied in this order; row_scale, row_sum and minimum may be absent.
struct ScaledSum {
  const float* part = nullptr;  // [rows][cols]
  int64_t rows = 0, cols = 0;
  const float* scale = nullptr;    // [cols]
  const float* minimum = nullptr;  // [cols], with row_sum
  const float* row_scale = nullptr;
  const float* row_sum = nullptr;
  int64_t row_stride = 0;  // elements from one row's scale, or sum, to the next
  float* c = nullptr;      // [rows][ldc]
  int64_t ldc = 0;
  bool first = false;  // c holds nothing yet
};

// The elements of a KV cache (ops/kv_quant.h).
// kLatent is a row of ops/latent_row.h, for keys and values alike.
enum class KvElement : uint8_t { kF32, kBf16, kI8, kE4M3, kU4, kLatent };

// Up to kKvBlock consecutive context positions of one kv head.
struct KvRows {
  const void* const* k = nullptr;  // [keys] pointers to [dim]
  const void* const* v = nullptr;  // [keys] pointers to [v_dim]
  // Where elements are quantized, [keys] pointers to bf16 scales: one, or, for kU4, one for each
  // `group` elements, followed by its zero point. `group` divides 64. Rows of kLatent have their
  // own scales, one for each `group` elements, and need none of these.
  const uint16_t* const* k_scale = nullptr;
  const uint16_t* const* v_scale = nullptr;
  int group = 0;
  int keys = 0;
  int dim = 0, v_dim = 0;
  KvElement element = KvElement::kF32;
  int scales_at = 0, rope_at = 0;  // kLatent: bytes from a row to its scales, and to its elements
                                   // from v_dim on, which are bf16
  const void* const* next_k = nullptr;  // [ahead] rows that will be loaded next
  const void* const* next_v = nullptr;
  int ahead = 0;
};

// One step of the online softmax (Milakov, Gimelshein 2018) for rows that share a kv head.
struct AttendBlock {
  const float* q = nullptr;  // [rows][q_stride], not scaled
  int64_t q_stride = 0;
  int rows = 0, dim = 0, keys = 0;
  float scale = 1;
  const int32_t* begin = nullptr;  // [rows]; row r sees keys [begin[r], end[r]) of this block,
  const int32_t* end = nullptr;    // at least one
  const float* kt = nullptr;       // [dim][kKvBlock]
  const float* v = nullptr;        // [kKvBlock][o_stride]
  float* max = nullptr;            // [rows]; running maximum, -inf at first
  float* sum = nullptr;            // [rows]; running sum of exponentials, 0 at first
  float* o = nullptr;              // [rows][o_stride]; running sum of values, 0 at first
  int64_t o_stride = 0;            // v_dim rounded up to a multiple of 16
  float* scores = nullptr;         // scratch, [rows][kKvBlock]
};

// A block of positions as attention in tiles takes it, for queries and a cache of bf16 and several
// kv heads. Weights are rounded to bf16. Queries lie in vectors of kQueryLanes, those of
// heads_in_lanes() heads one after the other in one vector, or those of one head in as many as they
// need.
constexpr int kQueryLanes = 16;
constexpr int heads_in_lanes(int queries) {
  return queries <= kQueryLanes / 2 ? kQueryLanes / queries : 1;
}
// The elements of a key or a query in tiles.
constexpr int64_t padded_dim(int64_t dim) { return (dim + kKStep - 1) / kKStep * kKStep; }
struct TileAttend {
  // Rows of the first head; those of the next one lie k_step or v_step bytes further on.
  const void* const* k = nullptr;       // [keys] pointers to [dim]
  const void* const* v = nullptr;       // [keys] pointers to [v_dim]
  const void* const* next_k = nullptr;  // [ahead] rows that will be loaded next
  int64_t k_step = 0, v_step = 0;
  int keys = 0, ahead = 0;
  int dim = 0, v_dim = 0;
  float scale = 1;
  int heads = 0, queries = 0;  // queries of each head, of which [from, to) are computed
  int from = 0, to = 0;
  // [vectors][padded_dim / 2][kQueryLanes] pairs of elements.
  const uint32_t* q = nullptr;
  const int32_t* begin = nullptr;  // [queries], as those of AttendBlock
  const int32_t* end = nullptr;
  float* max = nullptr;  // [heads * queries], as those of AttendBlock
  float* sum = nullptr;
  float* o = nullptr;    // [heads * queries][o_stride]
  int64_t o_stride = 0;  // v_dim rounded up to a multiple of 32
  // Scratch that begins on a line: keys [kKvBlock][padded_dim], values [o_stride rounded up to a
  // multiple of 64][kKvBlock], sums of values [kQueryLanes][sums_stride].
  uint16_t* keys_at = nullptr;
  uint16_t* values_at = nullptr;
  float* sums_at = nullptr;
  int64_t sums_stride = 0;  // o_stride rounded up to a multiple of 64, and kQueryLanes more
};

struct Kernels {
  Isa isa;
  const char* name;
  bool bf16_operand;  // gemm_bf16 reads `a` as bf16; else as f32

  // Rows and panels of one task of a product of floats: with some inputs of them and the result
  // they fit into a core's own cache.
  int block_rows, block_panels;

  void (*gemm_f32)(const GemmBlock&);
  void (*gemm_bf16)(const GemmBlock&);

  // Write the values of lines of codes as lines of a plain panel, of f32 or bf16; the latter is
  // there where bf16_operand is set.
  void (*expand_f32)(void* to, const CodeLines& from, Codes codes);
  void (*expand_bf16)(void* to, const CodeLines& from, Codes codes);
  void (*few_rows_f32)(const CodeRows&);
  // The sums of gemm_bf16, where bf16_operand is set. Faster than expanding codes for it up to
  // most_code_rows rows, of which a call takes at most code_rows_at_once.
  void (*code_rows_bf16)(const CodeRows&);
  int code_rows_at_once, most_code_rows;
  void (*scaled_sum)(const ScaledSum&);
  // Writes n integers within [-128, 127] as elements of int_bytes bytes in the order in which
  // int_rows() reads them: whole lines of codes, filled up with zeros, and at most 16 elements
  // more. Returns their sum. What is no number counts as zero.
  int32_t (*write_integers)(void* to, const float* x, int64_t n, bool nibbles);
  int int_bytes;
  void (*int_rows)(const CodeRows&);
  float (*max_abs)(const float* x, int64_t n);  // NaN if any of them is
  // x = x / scale, rounded and clipped to [low, high].
  void (*round_integers)(float* x, float scale, float low, float high, Ties ties, int64_t n);
  void (*round_e4m3)(float* x, float scale, int64_t n);  // the same for 8-bit floats

  // dst[c * 16 + j] = src[j][c] for 16 rows of `count` 32-bit units.
  void (*pack_panel)(uint32_t* dst, const uint32_t* const* src, int64_t count);
  // kt [dim][kKvBlock] and v [keys][o_stride] as f32, both zero-padded.
  void (*load_kv)(float* kt, float* v, int64_t o_stride, const KvRows& rows);
  void (*attend)(const AttendBlock&);
  void (*attend_tiles)(const TileAttend&);  // null where there are no tiles

  void (*bf16_to_f32)(float* out, const uint16_t* x, int64_t n);
  void (*f16_to_f32)(float* out, const uint16_t* x, int64_t n);
  void (*f32_to_bf16)(uint16_t* out, const float* x, int64_t n);
  void (*add)(float* x, const float* y, int64_t n);                  // x += y
  void (*add_scaled)(float* x, float s, const float* y, int64_t n);  // x += s * y
  float (*sum_squares)(const float* x, int64_t n);
  void (*scale)(float* out, const float* x, float s, const float* w, int64_t n);  // x * s * w
  void (*silu_mul)(float* out, const float* gate, const float* up, int64_t n);
  // out = exp((x - shift) * s): at most 2 ulp off where |(x - shift) * s| < 87; below -87.7 it is
  // 0, above 88.4 infinity.
  void (*exp)(float* out, const float* x, float shift, float s, int64_t n);
  float (*max)(const float* x, int64_t n);  // ignores NaN; -inf if there is no number
};

extern const Kernels kKernelsBaseline;
extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvx512;
// What VNNI adds.
void int_rows_avx512vnni(const CodeRows&);
int32_t write_integers_avx512vnni(void* to, const float* x, int64_t n, bool nibbles);
// What instructions for bf16 add or replace.
void gemm_bf16_avx512bf16(const GemmBlock&);
void expand_avx512bf16(void* to, const CodeLines& from, Codes codes);
void few_rows_avx512bf16(const CodeRows&);
// The same bits, arranged for Intel's cores.
void expand_avx512bf16_intel(void* to, const CodeLines& from, Codes codes);
void few_rows_avx512bf16_intel(const CodeRows&);
// What tiles replace.
void gemm_bf16_amx(const GemmBlock&);
// Up to kFewRowsAmx rows in vectors, with the bits of gemm_bf16_amx.
void plain_rows_amx(const GemmBlock&);
// Any number of rows.
void code_rows_amx(const CodeRows&);
void int_rows_amx(const CodeRows&);
void attend_amx(const TileAttend&);

}  // namespace skiff::cpu
