#include <string.h>

#include "ops/cpu/isa/bands.h"
#include "ops/cpu/isa/code_readers.h"
#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/scaled_sums.h"

namespace skiff::cpu {
namespace {

inline __m512bh pair_of(const uint16_t* p) {
  int both;
  memcpy(&both, p, sizeof both);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
}

// One sum of R rows times P panels of a band, which reads one stream of lines, in the steps of
// scaled_rows().
template <int R, int P, class Cores, class Reader>
void few_rows_sum(const CodeRows& g, int first, const CodeSum& s, bool opens,
                  const Reader& reader) {
  const LinePlace place = place_of(first, g.panels, g.panel_words);
  const uint32_t* b = g.b + place.first + s.line * place.step;
  const auto* a = static_cast<const uint16_t*>(g.a) + s.begin;
  const int64_t lda = g.lda;
  constexpr int kAhead = Cores::ahead(16 / Reader::kLines);
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
      _mm_prefetch(reinterpret_cast<const char*>(line) + kAhead, _MM_HINT_T0);
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
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) add_scaled(g, s, r, first + p, sum[r][p], opens);
  }
}

template <int R, int P, class Cores, class Reader>
void few_rows_panels(const CodeRows& g, int first, const Reader& reader) {
  for (int64_t i = 0; i < g.count; ++i)
    few_rows_sum<R, P, Cores>(g, first, g.sums[i], g.first && i == 0, reader);
}

template <int R, class Cores, class Reader>
void few_rows_of(const CodeRows& g, const Reader& reader) {
  if (g.rows < R) {
    if constexpr (R > 1) few_rows_of<R - 1, Cores>(g, reader);
    return;
  }
  constexpr int kPanels = R <= 4 ? kBand : 2;  // as many as registers hold sums of
  int p = 0;
  for (; p + kPanels <= g.panels; p += kPanels) few_rows_panels<R, kPanels, Cores>(g, p, reader);
  for (; p < g.panels; p += 2) few_rows_panels<R, 2, Cores>(g, p, reader);
}

template <class Cores>
void expand(void* to, const CodeLines& from, Codes codes) {
  with_reader<Cores>(codes, [&]<class Reader>(const Reader& reader) {
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

template <class Cores>
void few_rows(const CodeRows& g) {
  with_reader<Cores>(g.codes,
                     [&](const auto& reader) { few_rows_of<kFewRowsBf16, Cores>(g, reader); });
}

}  // namespace

void expand_avx512bf16(void* to, const CodeLines& from, Codes codes) {
  expand<AmdCores>(to, from, codes);
}
void expand_avx512bf16_intel(void* to, const CodeLines& from, Codes codes) {
  expand<IntelCores>(to, from, codes);
}
void few_rows_avx512bf16(const CodeRows& g) { few_rows<AmdCores>(g); }
void few_rows_avx512bf16_intel(const CodeRows& g) { few_rows<IntelCores>(g); }

}  // namespace skiff::cpu
