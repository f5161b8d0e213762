#include "weights/format.h"

namespace skiff {
namespace {

std::string extent(int block) { return block == 0 ? "all" : std::to_string(block); }

}  // namespace

std::string describe(const WeightFormat& format) {
  std::string text(name(format.dtype));
  if (!format.quantized()) return text;
  text += fmt::format(" with a {} scale", name(*format.scale));
  if (format.zero) text += fmt::format(" and a {} zero point", name(*format.zero));
  return text + fmt::format(" for each {} x {}", extent(format.block_out), extent(format.block_in));
}

}  // namespace skiff
