// GCC 12 takes the deliberately undefined sources of its own intrinsics for mistakes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#include <string.h>

#include "ops/cpu/isa/bands.h"

namespace skiff::cpu {
namespace {

// A line of a bf16 panel holds two inputs of each output side by side: in the halves of a word. A
// reader turns a line of codes into kLines such lines. A row that streams codes asks for those that
// lie kAhead bytes further on.

inline __m512i in_each_quarter(__m128i indices) { return _mm512_broadcast_i32x4(indices); }

// Integers of 8 bits. A byte below the exponent of 2^23 makes a float that much larger than the
// byte; the difference is exact, and so is its upper half, which is bf16. Bytes of signed codes are
// made unsigned first.
template <bool kSigned>
struct Integers {
  static constexpr int kLines = 2, kAhead = 512;
  static constexpr float kMagic = 0x1p23f;
  __m512i magic = _mm512_castps_si512(_mm512_set1_ps(kMagic));
  __m512 offset = _mm512_set1_ps(kMagic + (kSigned ? 128 : 0));
  __m512i top = _mm512_set1_epi8(static_cast<char>(0x80));
  __m512i upper =
      in_each_quarter(_mm_setr_epi8(2, 3, -1, -1, 6, 7, -1, -1, 10, 11, -1, -1, 14, 15, -1, -1));
  __m512i byte[4] = {
      in_each_quarter(_mm_setr_epi32(0, 4, 8, 12)), in_each_quarter(_mm_setr_epi32(1, 5, 9, 13)),
      in_each_quarter(_mm_setr_epi32(2, 6, 10, 14)), in_each_quarter(_mm_setr_epi32(3, 7, 11, 15))};

  __m512i value(__m512i u, int i) const {
    const __m512i large = _mm512_mask_shuffle_epi8(magic, 0x1111111111111111u, u, byte[i]);
    return _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(large), offset));
  }
  __m512i pair(__m512i u, int i) const {
    return _mm512_mask_shuffle_epi8(value(u, i + 1), 0x3333333333333333u, value(u, i), upper);
  }
  void read(__m512i (&to)[kLines], __m512i u) const {
    if (kSigned) u = _mm512_xor_si512(u, top);
    to[0] = pair(u, 0);
    to[1] = pair(u, 2);
  }
};

// Codes of e4m3, each in both bytes of a 16-bit lane. The exponent is rebiased by 120; the eight
// subnormal sizes, m * 2^-9, come from a table.
struct E4m3 {
  static constexpr int kLines = 2, kAhead = 512;
  __m512i small =
      in_each_quarter(_mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
  __m512i low = in_each_quarter(_mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13));
  __m512i high =
      in_each_quarter(_mm_setr_epi8(2, 2, 3, 3, 6, 6, 7, 7, 10, 10, 11, 11, 14, 14, 15, 15));
  __m512i size = _mm512_set1_epi16(0x07f0), bias = _mm512_set1_epi16(120 << 7);
  __m512i exponent = _mm512_set1_epi16(0x7800);
  __m512i sign = _mm512_set1_epi16(static_cast<int16_t>(0x8000));

  __m512i pair(__m512i twice) const {
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    const __m512i normal =
        _mm512_add_epi16(_mm512_and_si512(_mm512_srli_epi16(twice, 4), size), bias);
    const __mmask32 is_small = _mm512_testn_epi16_mask(twice, exponent);
    const __m512i value = _mm512_mask_permutexvar_epi16(normal, is_small, twice, small);
    return _mm512_ternarylogic_epi32(value, twice, sign, kOrAnd);
  }
  void read(__m512i (&to)[kLines], __m512i u) const {
    to[0] = pair(_mm512_shuffle_epi8(u, low));
    to[1] = pair(_mm512_shuffle_epi8(u, high));
  }
};

// bf16 values of the sixteen codes, twice, because a lookup also sees the lowest bit of the next
// code.
struct alignas(64) Table {
  uint16_t value[32];
};
template <int kFirst>
constexpr Table table_of_integers() {
  Table t = {};
  for (int i = 0; i < 32; ++i) {
    const int code = i % 16, value = code - (code >= 8 ? kFirst : 0),
              size = value < 0 ? -value : value;
    int exponent = 0;
    while (size >> exponent > 1) ++exponent;
    const int bits = size == 0 ? 0 : (127 + exponent) << 7 | ((size << 7 >> exponent) & 0x7f);
    t.value[i] = static_cast<uint16_t>(bits | (value < 0 ? 0x8000 : 0));
  }
  return t;
}
constexpr Table kSignedNibbles = table_of_integers<16>(), kUnsignedNibbles = table_of_integers<0>();
constexpr Table kE2m1 = {{0,      0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0,
                          0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0,
                          0,      0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0,
                          0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0}};

// The nibbles of each half word are the inputs 0, 2, 4, 6 or 1, 3, 5, 7.
struct Nibbles {
  static constexpr int kLines = 4, kAhead = 2048;
  __m512i values;
  explicit Nibbles(const Table& table) : values(_mm512_load_si512(table.value)) {}
  void read(__m512i (&to)[kLines], __m512i u) const {
    to[0] = _mm512_permutexvar_epi16(u, values);
    to[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(u, 4), values);
    to[2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(u, 8), values);
    to[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(u, 12), values);
  }
};

template <class Do>
void with_reader(Codes codes, Do f) {
  switch (codes) {
    case Codes::kI8:
      return f(Integers<true>{});
    case Codes::kU8:
      return f(Integers<false>{});
    case Codes::kF8E4M3:
      return f(E4m3{});
    case Codes::kI4:
      return f(Nibbles(kSignedNibbles));
    case Codes::kU4:
      return f(Nibbles(kUnsignedNibbles));
    case Codes::kF4E2M1:
      return f(Nibbles(kE2m1));
  }
}

inline __m512bh pair_of(const uint16_t* p) {
  int both;
  memcpy(&both, p, sizeof both);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
}

// One sum of R rows times P panels of a band, which reads one stream of lines, in the steps of
// scaled_rows().
template <int R, int P, class Reader>
void few_rows_sum(const CodeRows& g, int first, const CodeSum& s, bool opens,
                  const Reader& reader) {
  const LinePlace place = place_of(first, g.panels, g.panel_words);
  const uint32_t* b = g.b + place.first + s.line * place.step;
  const auto* a = static_cast<const uint16_t*>(g.a) + s.begin;
  const int64_t lda = g.lda;
  __m512 sum[R][P];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sum[r][p] = _mm512_setzero_ps();
  }
  for (int64_t i = 0; i < s.lines; ++i, a += int64_t{2} * Reader::kLines, b += place.step) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const uint32_t* line = b + int64_t{p} * kPanel;
      _mm_prefetch(reinterpret_cast<const char*>(line) + Reader::kAhead, _MM_HINT_T0);
      __m512i w[Reader::kLines];
      reader.read(w, _mm512_loadu_si512(line));
#pragma GCC unroll 4
      for (int n = 0; n < Reader::kLines; ++n) {
        const auto codes = reinterpret_cast<__m512bh>(w[n]);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
          sum[r][p] = _mm512_dpbf16_ps(sum[r][p], pair_of(a + r * lda + int64_t{2} * n), codes);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const float number = g.values ? g.values[r * g.value_stride + s.value] : 1;
    const __m512 row = _mm512_set1_ps(g.minimum ? -number : number);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const int64_t at = ((first + p) * g.groups + s.group - g.sums->group) * kPanel;
      __m512 v = _mm512_mul_ps(sum[r][p], _mm512_loadu_ps(g.scale + at));
      v = g.minimum ? _mm512_fmadd_ps(row, _mm512_loadu_ps(g.minimum + at), v)
                    : _mm512_mul_ps(v, row);
      float* c = g.c + (int64_t{r} * g.panels + first + p) * kPanel;
      _mm512_storeu_ps(c, opens ? v : _mm512_add_ps(_mm512_loadu_ps(c), v));
    }
  }
}

template <int R, int P, class Reader>
void few_rows_panels(const CodeRows& g, int first, const Reader& reader) {
  for (int64_t i = 0; i < g.count; ++i)
    few_rows_sum<R, P>(g, first, g.sums[i], g.first && i == 0, reader);
}

template <int R, class Reader>
void few_rows_of(const CodeRows& g, const Reader& reader) {
  if (g.rows < R) {
    if constexpr (R > 1) few_rows_of<R - 1>(g, reader);
    return;
  }
  constexpr int kPanels = R <= 4 ? kBand : 2;  // as many as registers hold sums of
  int p = 0;
  for (; p + kPanels <= g.panels; p += kPanels) few_rows_panels<R, kPanels>(g, p, reader);
  for (; p < g.panels; p += 2) few_rows_panels<R, 2>(g, p, reader);
}

}  // namespace

void expand_avx512bf16(void* to, const CodeLines& from, Codes codes) {
  with_reader(codes, [&]<class Reader>(const Reader& reader) {
    auto* out = static_cast<uint16_t*>(to);
    const uint32_t* words = from.first;
    for (int64_t i = 0; i < from.count; ++i, words += from.step) {
      __m512i w[Reader::kLines];
      reader.read(w, _mm512_loadu_si512(words));
      for (int n = 0; n < Reader::kLines; ++n, out += int64_t{2} * kPanel)
        _mm512_storeu_si512(out, w[n]);
    }
  });
}

void few_rows_avx512bf16(const CodeRows& g) {
  with_reader(g.codes, [&](const auto& reader) { few_rows_of<kFewRowsBf16>(g, reader); });
}

}  // namespace skiff::cpu
