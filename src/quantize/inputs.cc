#include "quantize/inputs.h"

#include <algorithm>

namespace skiff::quantize {

void Inputs::add(size_t linear, int64_t expert, const float* rows, int64_t count) {
  Matrix& m = rows_[{linear, expert}];
  m.cols = map_.linears[linear].slot.in;
  m.append_rows(rows, count);
}

// A unit's columns may be spread over several experts: a wide shared expert is cut into them.
std::vector<Inputs::Columns> Inputs::columns_of(size_t linear, size_t unit) const {
  const LinearSlot& slot = map_.linears[linear];
  std::vector<Columns> columns;
  int64_t at = 0;
  for (const Piece& piece : slot.pieces) {
    const bool known =
        std::ranges::any_of(columns, [&](const Columns& c) { return c.col == piece.col; });
    if (piece.unit == unit && !known)
      columns.push_back({slot.slot.experts ? at / slot.slot.out : 0, piece.col, piece.cols});
    at += piece.rows;
  }
  return columns;
}

Matrix Inputs::of_unit(size_t linear, size_t unit) const {
  const std::vector<Columns> columns = columns_of(linear, unit);
  const Unit& u = map_.units[unit];
  Matrix out(0, u.in);
  const auto first = rows_.find({linear, columns.at(0).expert});
  if (first == rows_.end()) return out;
  if (columns.size() == 1 && columns[0].cols == u.in) return first->second;
  out = Matrix(first->second.rows, u.in);
  for (const Columns& c : columns) {
    const Matrix& from = rows_.at({linear, c.expert});
    SKIFF_CHECK_EQ(from.rows, out.rows);
    for (int64_t r = 0; r < out.rows; ++r) std::copy_n(from.row(r), c.cols, out.row(r) + c.col);
  }
  return out;
}

std::vector<std::pair<int64_t, int64_t>> Inputs::key_of(size_t linear, size_t unit) const {
  std::vector<std::pair<int64_t, int64_t>> key = {{static_cast<int64_t>(linear), 0}};
  for (const Columns& c : columns_of(linear, unit)) key.emplace_back(c.expert, c.col);
  return key;
}

std::vector<std::vector<size_t>> stages_of(const LayerMap& map) {
  std::vector<std::vector<size_t>> stages;
  for (const auto& names : {std::vector<std::string_view>{"qkv"},
                            {"q_kv_latent"},
                            {"kv_latent", "q"},  // behind q_kv_latent q stands alone
                            {"out"},
                            {"expert_gate_up", "gate_up"},
                            {"expert_down", "down"}}) {
    std::vector<size_t> stage;
    for (const std::string_view name : names)
      for (size_t i = 0; i < map.linears.size(); ++i)
        if (map.linears[i].slot.name == name) stage.push_back(i);
    if (!stage.empty()) stages.push_back(std::move(stage));
  }
  return stages;
}

std::vector<size_t> units_of(const LinearSlot& linear) {
  std::vector<size_t> units;
  for (const Piece& piece : linear.pieces)
    if (std::ranges::find(units, piece.unit) == units.end()) units.push_back(piece.unit);
  return units;
}

}  // namespace skiff::quantize
