// model/sources.h -- which stored tensors fill which slot, settled before a byte is copied.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "model/family.h"
#include "model/quantization.h"
#include "model/slot_cut.h"
#include "model/slots.h"
#include "model/stored_format.h"
#include "weights/checkpoint.h"

namespace skiff::model {

// A part of a module's matrix, or of its transpose, that goes into a slot. Vectors are always taken
// whole.
struct Part {
  size_t module = 0;  // index of Source::modules
  Region region;

  int64_t elements() const { return region.rows * region.cols; }
};

// The parts of one slot in the order in which they are stacked: for an expert stack all parts of
// expert 0, then of expert 1, ...
struct Source {
  std::vector<StoredModule> modules;
  std::vector<Part> parts;
  bool transposed = false;  // regions are of the modules' transposes; then the format is plain
  // The canonical form of all parts, with blocks as fine as the parts ask for. Plain where the slot
  // must have floats or the parts have no form in common, which may be read so, too.
  WeightFormat format;
  // Where weights must be plain although they are quantized: their form, in words.
  std::string lost;
  // The layer's input in the order of the weight's columns, as Linear::order; empty: as it is.
  std::vector<int32_t> order;

  const StoredModule& module_of(const Part& part) const { return modules[part.module]; }
};

// Calls work(module, region, at) for what each part has of rows [first, first + rows) of the slot,
// seen as [experts * out, in]; `at` is where the region begins among these rows.
template <class Work>
void for_each_part(const Source& source, int64_t first, int64_t rows, Work work) {
  int64_t at = 0;
  for (const Part& part : source.parts) {
    const int64_t from = std::max(first, at);
    const int64_t to = std::min(first + rows, at + part.region.rows);
    if (from < to) {
      Region region = part.region;
      region.row += from - at;
      region.rows = to - from;
      work(source.module_of(part), region, from - first);
    }
    at += part.region.rows;
  }
  SKIFF_CHECK(first + rows <= at, "{} rows are stored, {} asked for", at, first + rows);
}

// What is worth knowing about a checkpoint that can be loaded: layers that are plain although the
// configuration lists them, tensors without a use.
enum class Remarks : uint8_t { kLogged, kLeftOut };

// One Source per slot, of the part that `cuts` say, one for each; without cuts, of the whole. That
// of a tied head is empty. Weights that must become plain are widened to `act`. Throws LoadError if
// a slot cannot be filled, a shape differs, a tensor is of no format in `quantization`, or one is
// left over.
std::vector<Source> find_sources(const Checkpoint& checkpoint, std::span<const NameRule> rules,
                                 const Quantization& quantization, std::span<const Slot> slots,
                                 const ModelSpec& spec, DType act = DType::kF32,
                                 Remarks remarks = Remarks::kLogged,
                                 std::span<const SlotCut> cuts = {});

}  // namespace skiff::model
