// GCC 12 takes the deliberately undefined sources of its own intrinsics for mistakes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#include <string.h>

#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {
namespace {

// A line of a bf16 panel holds two inputs of each output side by side: in the halves of a word. A
// reader turns a line of codes into kLines such lines.

// The pair of bytes from `shift` on of each word, as integers. They are exact in the upper half of
// a float.
template <bool kSigned>
inline __m512i integer_pair(__m512i u, unsigned shift) {
  const __m512i even = _mm512_slli_epi32(u, 24 - shift), odd = _mm512_slli_epi32(u, 16 - shift);
  const auto wide = [](__m512i v) {
    const __m512i field = kSigned ? _mm512_srai_epi32(v, 24) : _mm512_srli_epi32(v, 24);
    return _mm512_castps_si512(_mm512_cvtepi32_ps(field));
  };
  return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(wide(even), 16), wide(odd));
}

// Codes of e4m3 in the low bytes of 16-bit lanes. Their exponent is rebiased by 120; the eight
// subnormal sizes, m * 2^-9, come from a table.
inline __m512i e4m3_lanes(__m512i v) {
  const __m512i sizes = _mm512_broadcast_i32x4(
      _mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
  const __m512i size = _mm512_and_si512(v, _mm512_set1_epi16(0x7f));
  const __m512i normal = _mm512_add_epi16(_mm512_slli_epi16(size, 4), _mm512_set1_epi16(120 << 7));
  const __mmask32 small = _mm512_cmplt_epu16_mask(size, _mm512_set1_epi16(8));
  const __m512i value = _mm512_mask_permutexvar_epi16(normal, small, size, sizes);
  const __m512i sign = _mm512_slli_epi16(_mm512_and_si512(v, _mm512_set1_epi16(0x80)), 8);
  return _mm512_or_si512(value, sign);
}

template <bool kSigned>
struct Integers {
  static constexpr int kLines = 2;
  void read(__m512i (&to)[kLines], __m512i u) const {
    to[0] = integer_pair<kSigned>(u, 0);
    to[1] = integer_pair<kSigned>(u, 16);
  }
};

struct E4m3 {
  static constexpr int kLines = 2;
  __m512i low = _mm512_broadcast_i32x4(
      _mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1));
  __m512i high = _mm512_broadcast_i32x4(
      _mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1));
  void read(__m512i (&to)[kLines], __m512i u) const {
    to[0] = e4m3_lanes(_mm512_shuffle_epi8(u, low));
    to[1] = e4m3_lanes(_mm512_shuffle_epi8(u, high));
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
  static constexpr int kLines = 4;
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

constexpr int64_t kAhead = 16;  // lines of a panel that are asked for ahead of their use

// R rows and P panels, whose sums are independent of each other.
template <int R, int P, class Reader>
void few_rows_panels(const CodeRows& g, int first, const Reader& reader) {
  const int64_t ld = g.panels * kPanel;
  const uint32_t* b = g.b + first * g.panel_words;
  const auto* a = static_cast<const uint16_t*>(g.a);
  float* part = g.part + first * kPanel;
  __m512 sum[R][P];
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p)
      sum[r][p] = g.add ? _mm512_loadu_ps(part + r * ld + p * kPanel) : _mm512_setzero_ps();
  for (int64_t line = 0; line < g.lines; ++line, a += 2 * Reader::kLines, b += kPanel) {
    __m512bh x[R][Reader::kLines];
    for (int r = 0; r < R; ++r)
      for (int i = 0; i < Reader::kLines; ++i) x[r][i] = pair_of(a + r * g.lda + 2 * i);
    for (int p = 0; p < P; ++p) {
      const uint32_t* from = b + p * g.panel_words;
      _mm_prefetch(reinterpret_cast<const char*>(from + kAhead * kPanel), _MM_HINT_T0);
      __m512i w[Reader::kLines];
      reader.read(w, _mm512_loadu_si512(from));
      for (int i = 0; i < Reader::kLines; ++i)
        for (int r = 0; r < R; ++r)
          sum[r][p] = _mm512_dpbf16_ps(sum[r][p], x[r][i], reinterpret_cast<__m512bh>(w[i]));
    }
  }
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) _mm512_storeu_ps(part + r * ld + p * kPanel, sum[r][p]);
}

template <int R, class Reader>
void few_rows_of(const CodeRows& g, const Reader& reader) {
  if (g.rows < R) {
    if constexpr (R > 1) few_rows_of<R - 1>(g, reader);
    return;
  }
  int p = 0;
  if constexpr (R == 1)
    for (; p + 8 <= g.panels; p += 8) few_rows_panels<R, 8>(g, p, reader);
  for (; p + 4 <= g.panels; p += 4) few_rows_panels<R, 4>(g, p, reader);
  for (; p < g.panels; p += 2) few_rows_panels<R, 2>(g, p, reader);
}

}  // namespace

void expand_avx512bf16(void* to, const uint32_t* from, int64_t lines, Codes codes) {
  with_reader(codes, [&]<class Reader>(const Reader& reader) {
    auto* out = static_cast<uint16_t*>(to);
    for (int64_t i = 0; i < lines; ++i, from += kPanel) {
      __m512i w[Reader::kLines];
      reader.read(w, _mm512_loadu_si512(from));
      for (int n = 0; n < Reader::kLines; ++n, out += 2 * kPanel) _mm512_storeu_si512(out, w[n]);
    }
  });
}

void few_rows_avx512bf16(const CodeRows& g) {
  with_reader(g.codes, [&](const auto& reader) { few_rows_of<kFewRows>(g, reader); });
}

}  // namespace skiff::cpu
