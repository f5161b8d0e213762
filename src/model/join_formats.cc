#include "model/join_formats.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include <fmt/format.h>

namespace skiff::model {
namespace {

// Blocks are cut until each lies in one part and in one block of the checkpoint. Only the last ones
// of a matrix may be partial.
void refine_blocks(Source& source, const Slot& slot) {
  WeightFormat& format = source.format;
  int64_t down = format.block_out, across = format.block_in, at = 0;
  for (const Part& part : source.parts) {
    const Region& region = part.region;
    if (down == 0 && region.rows % slot.out) down = 1;
    const int64_t begin = region.row % source.module_of(part).shape.out;
    down = down ? std::gcd(down, std::gcd(begin, at % slot.out)) : 0;
    if (across) across = std::gcd(across, region.col);
    at += region.rows;
  }
  format.block_out = static_cast<int>(down);
  format.block_in = static_cast<int>(across);
}

// Scales of fewer elements than this cost more than they are worth.
constexpr int kLeastBlock = 16;

// Returns the order of columns that all parts share; nothing where the parts have different orders
// or the columns are cut.
std::optional<std::vector<int32_t>> common_order(const Source& source) {
  const std::vector<int32_t>& first = source.modules[0].order;
  for (const StoredModule& module : source.modules)
    if (module.order != first) return std::nullopt;
  for (const Part& part : source.parts)
    if (!first.empty() && part.region.cols != source.module_of(part).shape.in) return std::nullopt;
  return first;
}

// Makes the values of a quantized source floats.
void widen_all(Source& source, DType to) {
  source.format = {.dtype = to};
  source.order.clear();
}

WeightFormat format_of(const StoredModule& module) {
  return ModuleTensors{.format = module.format, .tensors = module.tensors, .missing = {}}
      .weight_format();
}

}  // namespace

void join_formats(Source& source, const Slot& slot, DType act) {
  source.format = format_of(source.modules[0]);
  bool alike = true;
  for (const StoredModule& module : source.modules) {
    WeightFormat format = format_of(module);
    if (format == source.format) continue;
    if (!format.quantized() && !source.format.quantized()) {
      source.format = {.dtype = DType::kF32};
      continue;
    }
    if (format.scale != source.format.scale && format.scale && source.format.scale)
      format.scale = source.format.scale = DType::kF32;
    alike = alike && format == source.format;
  }
  const bool quantized = std::ranges::any_of(
      source.modules, [](const StoredModule& m) { return m.format->quantized(); });
  if (!quantized) return;
  if (slot.plain) return widen_all(source, act);
  std::string why = "in parts of different formats";
  if (alike && source.format.quantized()) {
    refine_blocks(source, slot);
    if (auto order = common_order(source)) {
      source.order = *order;
    } else {
      alike = false;
      why = fmt::format("{} whose columns are in orders that differ or are cut",
                        source.modules[0].format->name);
    }
    if (source.format.block_in && source.format.block_in < kLeastBlock) {
      alike = false;
      why = fmt::format("in blocks of fewer than {} columns", kLeastBlock);
    }
    if (bits(source.format.dtype) < 8 && slot.in % 2) alike = false;
  }
  const bool kept = slot.kind == Slot::kLinear && !slot.wide && source.format.quantized();
  if (alike && kept) return;
  if (slot.kind == Slot::kLinear && !slot.wide)
    source.lost = alike ? source.modules[0].format->name : why;
  widen_all(source, slot.wide ? DType::kF32 : act);
}

}  // namespace skiff::model
