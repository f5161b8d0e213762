// ops/cpu/isa/bands.h -- where the lines of a panel of codes lie among those of its band.
#pragma once
#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {
namespace {

// In words of 32 bits from the first band on; `step` is from one line to the next.
struct LinePlace {
  int64_t first, step;
};

// `panels` is how many there are from the first band on.
inline LinePlace place_of(int64_t panel, int64_t panels, int64_t panel_words) {
  const int64_t band = panel / kBand * kBand, left = panels - band;
  return {band * panel_words + (panel - band) * kPanel, (left < kBand ? left : kBand) * kPanel};
}

}  // namespace
}  // namespace skiff::cpu
