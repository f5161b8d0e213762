// quantize/inputs.h -- the inputs of a layer's weights on the calibration data.
#pragma once
#include <map>
#include <utility>

#include "quantize/layer.h"

namespace skiff::quantize {

class Inputs {
 public:
  explicit Inputs(const LayerMap& map) : map_(map) {}

  void add(size_t linear, int64_t expert, const float* rows, int64_t count);
  // The inputs of one unit's columns, [tokens, in]; no rows where it saw no token.
  Matrix of_unit(size_t linear, size_t unit) const;
  // Equal for units that have the same inputs.
  std::vector<std::pair<int64_t, int64_t>> key_of(size_t linear, size_t unit) const;

 private:
  struct Columns {
    int64_t expert = 0, col = 0, cols = 0;
  };
  std::vector<Columns> columns_of(size_t linear, size_t unit) const;

  const LayerMap& map_;
  std::map<std::pair<size_t, int64_t>, Matrix> rows_;
};

// The weights that get their inputs at the same place of a layer, in the order of computing; the
// last one's inputs are seen last.
std::vector<std::vector<size_t>> stages_of(const LayerMap& map);
// The units of a linear, each once.
std::vector<size_t> units_of(const LinearSlot& linear);

}  // namespace skiff::quantize
