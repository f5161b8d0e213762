#include "quantize/folding.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/convert.h"

namespace skiff::quantize {
namespace {

constexpr int64_t kTokens = 512;        // the length of a sample on which factors are tried
constexpr int64_t kExpertTokens = 128;  // the same for each of many experts

// A value as a tensor of that dtype keeps it.
float as_stored(float x, const StoredTensor& tensor) {
  if (tensor.entry->dtype == "BF16" || tensor.entry->dtype == kFloat8) return to_float(to_bf16(x));
  if (tensor.entry->dtype == "F16") return to_float(to_f16(x));
  return x;
}

// The class of each input of the output projection: query heads that share a KV head share its
// values.
std::vector<int32_t> value_classes(const Gqa& m) {
  std::vector<int32_t> classes;
  const int shared = m.heads / m.kv_heads;
  for (int h = 0; h < m.heads; ++h)
    for (int d = 0; d < m.head_dim; ++d) classes.push_back(h / shared * m.head_dim + d);
  return classes;
}

// The middle of each class of channels.
std::vector<float> middles(const Matrix& x, const std::vector<int32_t>& classes, int64_t count) {
  const auto n = static_cast<size_t>(count);
  std::vector<float> low(n, std::numeric_limits<float>::max()), high(n, -low[0]);
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t c = 0; c < x.cols; ++c) {
      const auto i = static_cast<size_t>(classes[static_cast<size_t>(c)]);
      low[i] = std::min(low[i], x.row(t)[c]);
      high[i] = std::max(high[i], x.row(t)[c]);
    }
  for (size_t i = 0; i < n; ++i) low[i] = low[i] / 2 + high[i] / 2;
  return low;
}

}  // namespace

Folding::Folding(const Settings& settings, const LayerMap& map, LayerValues& values,
                 const ModelSpec& spec, Ops& ops)
    : settings_(settings), map_(map), values_(values), spec_(spec), ops_(ops) {
  folded_.plains.resize(map.plains.size());
  folded_.units.resize(map.units.size());
}

void Folding::fold(const std::vector<size_t>& stage, const Inputs& inputs) {
  const std::string_view name = map_.linears[stage.front()].slot.name;
  if (name == "qkv" || name == "q_kv_latent" || name == "kv_latent")
    return fold_norm("mixer_norm", stage, inputs);
  if (name == "q") return fold_norm("q_latent_norm", stage, inputs);
  if (name == "out" && map_.linear("qkv")) return fold_values(stage.front(), inputs);
  if (name == "out") return fold_latent_values(stage.front(), inputs);
  if (name == "gate_up" || name == "expert_gate_up") return fold_norm("ffn_norm", stage, inputs);
  for (const size_t down : stage) fold_up(down, inputs);
}

FoldConsumer Folding::consumer(size_t linear, size_t unit, const Inputs& inputs,
                               int64_t tokens) const {
  return {.weight = &values_.units[unit],
          .inputs = sample_rows(inputs.of_unit(linear, unit), tokens),
          .format = settings_.format_for(map_.units[unit].in)};
}

FoldChoice Folding::search(const FoldProblem& problem) const {
  return settings_.target->method == Method::kSmooth
             ? smooth_factors(problem, ops_, settings_.threads)
             : awq_factors(problem, ops_, settings_.threads);
}

std::vector<float> Folding::factors_of(FoldChoice choice) {
  ++folded_.tried;
  if (choice.error < choice.without) ++folded_.kept;
  return std::move(choice.factors);
}

// A bias that the checkpoint has not will be stored like the weight.
float Folding::as_bias(float x, size_t unit) const {
  const Unit& u = map_.units[unit];
  return as_stored(x, u.bias ? *u.bias : *u.tensor);
}

void Folding::scale_columns(size_t unit, std::span<const float> factors, int64_t col) {
  Matrix& w = values_.units[unit];
  for (int64_t r = 0; r < w.rows; ++r)
    for (size_t c = 0; c < factors.size(); ++c)
      w.row(r)[col + static_cast<int64_t>(c)] *= factors[c];
  folded_.units[unit] = true;
}

void Folding::shrink_rows(size_t unit, std::span<const float> factors, int64_t row) {
  Matrix& w = values_.units[unit];
  std::vector<float>& bias = values_.biases[unit];
  for (size_t i = 0; i < factors.size(); ++i) {
    const int64_t r = row + static_cast<int64_t>(i);
    for (float& x : w.row_span(r)) x /= factors[i];
    if (bias.empty()) continue;
    float& b = bias[static_cast<size_t>(r)];
    b = as_bias(b / factors[i], unit);
  }
  folded_.units[unit] = true;
}

void Folding::fold_norm(std::string_view norm, const std::vector<size_t>& stage,
                        const Inputs& inputs) {
  FoldProblem problem{.consumers = {}, .input = settings_.format.input, .classes = {}};
  for (const size_t linear : stage)
    for (const size_t unit : units_of(map_.linears[linear])) {
      if (settings_.ignored(map_.units[unit].name)) continue;
      FoldConsumer one = consumer(linear, unit, inputs,
                                  map_.linears[linear].slot.experts ? kExpertTokens : kTokens);
      if (one.inputs.rows > 0) problem.consumers.push_back(std::move(one));
    }
  if (problem.consumers.empty()) return;
  std::vector<float> factors = factors_of(search(problem));
  for (size_t i = 0; i < map_.plains.size(); ++i) {
    const PlainSlot& plain = map_.plains[i];
    if (plain.slot.name != norm) continue;
    for (size_t c = 0; c < factors.size(); ++c) {
      float& weight = values_.plains[i][c];
      const float divided = as_stored(weight / factors[c], *plain.tensor);
      factors[c] = weight != 0 && divided != 0 ? weight / divided : 1;
      if (factors[c] != 1) weight = divided;
    }
    folded_.plains[i] = true;
  }
  for (const size_t linear : stage)
    for (const size_t unit : units_of(map_.linears[linear])) scale_columns(unit, factors, 0);
  if (norm != "ffn_norm") return;
  for (size_t i = 0; i < map_.plains.size(); ++i) {
    if (map_.plains[i].slot.name != "router") continue;
    for (size_t at = 0; at < values_.plains[i].size(); ++at)
      values_.plains[i][at] =
          as_stored(values_.plains[i][at] * factors[at % factors.size()], *map_.plains[i].tensor);
    folded_.plains[i] = true;
  }
}

void Folding::fold_values(size_t out, const Inputs& inputs) {
  const LinearSlot* qkv = map_.linear("qkv");
  const LinearSlot& slot = map_.linears[out];
  if (!qkv || qkv->pieces.size() != 3 || slot.pieces.size() != 1) return;
  const size_t unit = slot.pieces[0].unit, value = qkv->pieces[2].unit;
  if (settings_.ignored(map_.units[unit].name)) return;
  const auto& mixer = std::get<Gqa>(spec_.layers[static_cast<size_t>(map_.layer)].mixer);
  FoldProblem problem{
      .consumers = {}, .input = settings_.format.input, .classes = value_classes(mixer)};
  problem.consumers.push_back(consumer(out, unit, inputs, kTokens));
  if (problem.consumers[0].inputs.rows == 0) return;
  FoldChoice choice = search(problem);
  if (settings_.shift) shift_values(problem, unit, value, inputs.of_unit(out, unit), choice);
  const std::vector<float> factors = factors_of(std::move(choice));
  std::vector<float> of_values(static_cast<size_t>(map_.units[value].out), 1);
  for (size_t c = 0; c < factors.size(); ++c)
    of_values[static_cast<size_t>(problem.classes[c])] = factors[c];
  scale_columns(unit, factors, 0);
  shrink_rows(value, of_values, 0);
}

// Subtracts the middle of each input from the bias of the values, whose mixtures the inputs are,
// and adds what the output loses by that to its own bias; unless the error is smaller without.
// `choice` has the factors without, and then those that go with it.
void Folding::shift_values(FoldProblem problem, size_t out, size_t value, const Matrix& inputs,
                           FoldChoice& choice) {
  std::vector<float>&of_values = values_.biases[value], &of_out = values_.biases[out];
  SKIFF_CHECK(!of_values.empty() && !of_out.empty(), "shifting without biases");
  std::vector<float> shift = middles(inputs, problem.classes, std::ssize(of_values)), moved;
  for (size_t i = 0; i < shift.size(); ++i) {
    moved.push_back(as_bias(of_values[i] - shift[i], value));
    shift[i] = of_values[i] - moved[i];
  }
  const auto shift_at = [&](int64_t c) {
    return shift[static_cast<size_t>(problem.classes[static_cast<size_t>(c)])];
  };
  Matrix& x = problem.consumers[0].inputs;
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t c = 0; c < x.cols; ++c) x.row(t)[c] -= shift_at(c);
  FoldChoice other = search(problem);
  if (other.error >= choice.error) return;
  choice = std::move(other);
  of_values = std::move(moved);
  const Matrix& w = values_.units[out];
  for (int64_t r = 0; r < w.rows; ++r) {
    double lost = 0;
    for (int64_t c = 0; c < w.cols; ++c)
      lost += static_cast<double>(w.row(r)[c]) * static_cast<double>(shift_at(c));
    float& bias = of_out[static_cast<size_t>(r)];
    bias = as_bias(static_cast<float>(bias + lost), out);
  }
  ++folded_.shifts;
}

// The values of heads are rows of a plain weight, which powers of two divide without rounding.
void Folding::fold_latent_values(size_t out, const Inputs& inputs) {
  const size_t unit = map_.linears[out].pieces.at(0).unit;
  if (settings_.ignored(map_.units[unit].name)) return;
  FoldProblem problem{
      .consumers = {}, .input = settings_.format.input, .classes = {}, .powers = true};
  problem.consumers.push_back(consumer(out, unit, inputs, kTokens));
  if (problem.consumers[0].inputs.rows == 0) return;
  const std::vector<float> factors = factors_of(search(problem));
  for (size_t i = 0; i < map_.plains.size(); ++i)
    if (const model::Slot* value = map_.plains[i].stack("value")) {
      for (int64_t row = 0; row < std::ssize(factors); ++row) {
        const int64_t head = row / value->out, stored = value->heads->first + row % value->out;
        float* to = values_.plains[i].data() + (head * value->heads->each + stored) * value->in;
        for (int64_t c = 0; c < value->in; ++c)
          to[c] = as_stored(to[c] / factors[static_cast<size_t>(row)], *map_.plains[i].tensor);
      }
      folded_.plains[i] = true;
    }
  scale_columns(unit, factors, 0);
}

void Folding::fold_up(size_t down, const Inputs& inputs) {
  const LinearSlot& slot = map_.linears[down];
  const LinearSlot* gate_up = map_.linear(slot.slot.name == "down" ? "gate_up" : "expert_gate_up");
  if (!gate_up) return;
  // Where the upper half for expert e lies.
  const auto upper = [&](int64_t expert) -> const Piece& {
    const int64_t want = (expert + 1) * gate_up->slot.out - gate_up->slot.out / 2;
    int64_t at = 0;
    for (const Piece& piece : gate_up->pieces) {
      if (at == want) return piece;
      at += piece.rows;
    }
    SKIFF_CHECK(false, "expert {} has no upper half", expert);
  };
  for (const size_t unit : units_of(slot)) {
    if (settings_.ignored(map_.units[unit].name)) continue;
    FoldProblem problem{.consumers = {}, .input = settings_.format.input, .classes = {}};
    problem.consumers.push_back(consumer(down, unit, inputs, kTokens));
    if (problem.consumers[0].inputs.rows < std::min<int64_t>(settings_.min_tokens, kTokens))
      continue;
    const std::vector<float> factors = factors_of(search(problem));
    scale_columns(unit, factors, 0);
    std::vector<int64_t> done;
    int64_t at = 0;
    for (const Piece& piece : slot.pieces) {
      const int64_t expert = slot.slot.experts ? at / slot.slot.out : 0;
      at += piece.rows;
      if (piece.unit != unit || std::ranges::find(done, piece.col) != done.end()) continue;
      done.push_back(piece.col);
      const Piece& up = upper(expert);
      shrink_rows(up.unit,
                  std::span(factors).subspan(static_cast<size_t>(piece.col),
                                             static_cast<size_t>(piece.cols)),
                  up.row);
    }
  }
}

}  // namespace skiff::quantize
