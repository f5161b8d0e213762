// ops/cpu/isa/code_readers.h -- lines of codes as lines of bf16, by instructions for bytes and
// bf16.
#pragma once
#include <stdint.h>

#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {
namespace {

// A line of a bf16 panel holds two inputs of each output side by side: in the halves of a word. A
// reader turns a line of codes into kLines such lines. Each of them gives the same bits on every
// processor.

inline __m512i in_each_quarter(__m128i indices) { return _mm512_broadcast_i32x4(indices); }

// Integers of 8 bits by arithmetic. A byte below the exponent of 2^23 makes a float that much
// larger than the byte; the difference is exact, and so is its upper half, which is bf16. Signed
// bytes are first made unsigned by adding 128.
template <bool kSigned>
struct ComputedBytes {
  static constexpr int kLines = 2;
  static constexpr float kMagic = 0x1p23f;
  __m512i top = _mm512_set1_epi8(static_cast<char>(0x80));
  __m512i magic = _mm512_castps_si512(_mm512_set1_ps(kMagic));
  __m512 offset = _mm512_set1_ps(kMagic + (kSigned ? 128 : 0));
  __m512i upper =
      in_each_quarter(_mm_setr_epi8(2, 3, -1, -1, 6, 7, -1, -1, 10, 11, -1, -1, 14, 15, -1, -1));
  __m512i byte[4] = {
      in_each_quarter(_mm_setr_epi32(0, 4, 8, 12)), in_each_quarter(_mm_setr_epi32(1, 5, 9, 13)),
      in_each_quarter(_mm_setr_epi32(2, 6, 10, 14)), in_each_quarter(_mm_setr_epi32(3, 7, 11, 15))};

  __m512i without_sign(__m512i u) const { return kSigned ? _mm512_xor_si512(u, top) : u; }
  // The value of byte i of each word of what without_sign() returned.
  __m512 value(__m512i u, int i) const {
    const __m512i large = _mm512_mask_shuffle_epi8(magic, 0x1111111111111111u, u, byte[i]);
    return _mm512_sub_ps(_mm512_castsi512_ps(large), offset);
  }
  __m512i pair(__m512i u, int i) const {
    return _mm512_mask_shuffle_epi8(_mm512_castps_si512(value(u, i + 1)), 0x3333333333333333u,
                                    _mm512_castps_si512(value(u, i)), upper);
  }
  void read(__m512i (&to)[kLines], __m512i u) const {
    u = without_sign(u);
    to[0] = pair(u, 0);
    to[1] = pair(u, 2);
  }
};

// An integer of at most 8 bits as bf16.
constexpr unsigned bf16_of(int size) {
  int exponent = 0;
  while (size >> exponent > 1) ++exponent;
  return size == 0 ? 0 : (127u + exponent) << 7 | ((size << 7 >> exponent) & 0x7f);
}
// The size of a code of e4m3, in its lower 7 bits, as bf16.
constexpr unsigned bf16_of_e4m3(int code) {
  const int exponent = code >> 3, mantissa = code & 7;
  if (code == 0x7f) return 0x7fc0;  // not a number
  if (exponent > 0) return (120u + exponent) << 7 | mantissa << 4;
  return mantissa == 0 ? 0 : bf16_of(mantissa) - (9 << 7);  // multiples of 2^-9
}

// The lower and the upper bytes of 128 numbers.
struct alignas(64) ByteTables {
  uint8_t low[128], high[128];
};
template <unsigned (*Of)(int)>
constexpr ByteTables byte_tables() {
  ByteTables t = {};
  for (int i = 0; i < 128; ++i) {
    t.low[i] = static_cast<uint8_t>(Of(i));
    t.high[i] = static_cast<uint8_t>(Of(i) >> 8);
  }
  return t;
}
constexpr ByteTables kSizes = byte_tables<bf16_of>(), kE4m3Sizes = byte_tables<bf16_of_e4m3>();

// The indices that join two lower bytes of each word, from the first on, with the upper ones.
struct alignas(64) Join {
  uint8_t from[64];
};
constexpr Join join_of(int first) {
  Join join = {};
  for (int i = 0; i < 64; ++i)
    join.from[i] = static_cast<uint8_t>(i / 4 * 4 + first + i % 4 / 2 + i % 2 * 64);
  return join;
}
constexpr Join kFirst = join_of(0), kSecond = join_of(2);

// Codes of 8 bits with a sign: their size is looked up by the lower seven bits. That of an integer
// is its magnitude, but for -128, whose lower byte is that of zero.
template <bool kIntegers>
struct SignedBytes {
  static constexpr int kLines = 2;
  static constexpr const ByteTables& kTables = kIntegers ? kSizes : kE4m3Sizes;
  __m512i low[2] = {_mm512_load_si512(kTables.low), _mm512_load_si512(kTables.low + 64)};
  __m512i high[2] = {_mm512_load_si512(kTables.high), _mm512_load_si512(kTables.high + 64)};
  __m512i first = _mm512_load_si512(kFirst.from), second = _mm512_load_si512(kSecond.from);
  __m512i top = _mm512_set1_epi8(static_cast<char>(0x80));
  __m512i lowest = _mm512_set1_epi8(static_cast<char>(0xc3));  // -128 is 0xc300

  void read(__m512i (&to)[kLines], __m512i u) const {
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    const __m512i size = kIntegers ? _mm512_abs_epi8(u) : u;
    const __m512i lower = _mm512_permutex2var_epi8(low[0], size, low[1]);
    __m512i upper = _mm512_permutex2var_epi8(high[0], size, high[1]);
    upper = _mm512_ternarylogic_epi32(upper, u, top, kOrAnd);
    if constexpr (kIntegers)
      upper = _mm512_mask_mov_epi8(upper, _mm512_cmpeq_epi8_mask(u, top), lowest);
    to[0] = _mm512_permutex2var_epi8(lower, first, upper);
    to[1] = _mm512_permutex2var_epi8(lower, second, upper);
  }
};

// Reads codes in e4m3 as SignedBytes does, but first brings bytes into the order in which unpacking
// joins lower ones with upper ones: a shuffle and two unpackings in place of two lookups.
struct UnpackedE4m3 {
  static constexpr int kLines = 2;
  __m512i low[2] = {_mm512_load_si512(kE4m3Sizes.low), _mm512_load_si512(kE4m3Sizes.low + 64)};
  __m512i high[2] = {_mm512_load_si512(kE4m3Sizes.high), _mm512_load_si512(kE4m3Sizes.high + 64)};
  __m512i order =
      in_each_quarter(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
  __m512i top = _mm512_set1_epi8(static_cast<char>(0x80));

  void read(__m512i (&to)[kLines], __m512i u) const {
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    const __m512i ordered = _mm512_shuffle_epi8(u, order);
    const __m512i lower = _mm512_permutex2var_epi8(low[0], ordered, low[1]);
    const __m512i size = _mm512_permutex2var_epi8(high[0], ordered, high[1]);
    const __m512i upper = _mm512_ternarylogic_epi32(size, ordered, top, kOrAnd);
    to[0] = _mm512_unpacklo_epi8(lower, upper);
    to[1] = _mm512_unpackhi_epi8(lower, upper);
  }
};

// bf16 values of the sixteen codes, twice, because a lookup also sees the lowest bit of the next
// code.
struct alignas(64) Table {
  uint16_t value[32];
};
template <int kBelow>
constexpr Table table_of_integers() {
  Table t = {};
  for (int i = 0; i < 32; ++i) {
    const int code = i % 16, value = code - (code >= 8 ? kBelow : 0);
    t.value[i] = static_cast<uint16_t>(value < 0 ? 0x8000 | bf16_of(-value) : bf16_of(value));
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

// What the cores of two makers do differently. A row that streams codes of so many bits asks for
// those that lie ahead() bytes further on.
//
// AMD (Zen 4): VPERMI2B is one micro-operation; prefetches of 8-bit codes from further ahead
// slow the stream down.
struct AmdCores {
  using SignedIntegers = SignedBytes<true>;
  using E4m3 = SignedBytes<false>;
  static constexpr int ahead(int bits) { return bits == 8 ? 512 : 2048; }
};
// Intel (Sapphire and Emerald Rapids): VPERMI2B takes three, two of which share a port with all
// other shuffles, and memory is further away.
struct IntelCores {
  using SignedIntegers = ComputedBytes<true>;
  using E4m3 = UnpackedE4m3;
  static constexpr int ahead(int /*bits*/) { return 4096; }
};

template <class Cores, class Do>
void with_reader(Codes codes, Do f) {
  switch (codes) {
    case Codes::kI8:
      return f(typename Cores::SignedIntegers{});
    case Codes::kU8:
      return f(ComputedBytes<false>{});
    case Codes::kF8E4M3:
      return f(typename Cores::E4m3{});
    case Codes::kI4:
      return f(Nibbles(kSignedNibbles));
    case Codes::kU4:
      return f(Nibbles(kUnsignedNibbles));
    case Codes::kF4E2M1:
      return f(Nibbles(kE2m1));
  }
}

}  // namespace
}  // namespace skiff::cpu
