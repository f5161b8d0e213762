#include "quantize/layer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/load_error.h"
#include "base/log.h"

namespace skiff::quantize {
namespace {

constexpr int kPage = 64;
constexpr int64_t kGroupRows = 1024;  // short sequences are computed together, up to this

int64_t pages_for(int64_t positions) { return (positions + kPage - 1) / kPage; }

void check_finite(const std::vector<float>& values, const StoredTensor& tensor) {
  for (const float x : values)
    if (!std::isfinite(x))
      fail_load("tensor \"{}\" has a value that is not finite ({}); it cannot be quantized",
                escaped(tensor.entry->name), x);
}

// The matrices of a stack [experts, out, in], cut from the stored weight.
std::vector<float> cut_heads(const model::Slot& stack, const std::vector<float>& whole) {
  const model::Slot::HeadCut& cut = *stack.heads;
  const int64_t wide = cut.transposed ? stack.out : stack.in;
  std::vector<float> values;
  values.reserve(static_cast<size_t>(stack.elements()));
  for (int64_t h = 0; h < stack.experts; ++h) {
    const float* own = whole.data() + (h * cut.each + cut.first) * wide;
    for (int64_t r = 0; r < stack.out; ++r)
      for (int64_t c = 0; c < stack.in; ++c)
        values.push_back(cut.transposed ? own[c * wide + r] : own[r * wide + c]);
  }
  return values;
}

}  // namespace

LayerValues read_layer(const LayerMap& map) {
  LayerValues values;
  for (const Unit& unit : map.units) {
    Matrix m;
    m.rows = unit.out;
    m.cols = unit.in;
    m.values = read_rows(*unit.module, unit.first_row, unit.out);
    check_finite(m.values, *unit.tensor);
    values.units.push_back(std::move(m));
    values.biases.push_back(unit.bias ? read_floats(*unit.bias) : std::vector<float>{});
  }
  for (const PlainSlot& plain : map.plains) {
    values.plains.push_back(plain.module->format->quantized()
                                ? read_rows(*plain.module, 0, plain.module->shape.rows())
                                : read_floats(*plain.tensor));
    check_finite(values.plains.back(), *plain.tensor);
  }
  return values;
}

// What the decoder is given, and the memory behind it.
struct LayerRunner::Prepared {
  model::ModelWeights weights;
  std::vector<std::vector<Buffer>> owners;  // one entry for each linear layer
  std::vector<Buffer> plain_owners;
  std::vector<std::vector<float>> biases;  // one entry for each linear layer
  std::vector<std::vector<Linear>> experts;
  std::vector<Linear*> linears;
  std::vector<float> ones;
  Norm last;
};

LayerRunner::~LayerRunner() = default;

LayerRunner::LayerRunner(const LayerMap& map, const LayerValues& values, const ModelSpec& spec,
                         Ops& base, std::vector<std::optional<RoundedInput>> inputs)
    : map_(map),
      values_(values),
      base_(base),
      spec_(spec),
      inputs_(std::move(inputs)),
      prepared_(std::make_unique<Prepared>()) {
  spec_.layers = {spec.layers.at(static_cast<size_t>(map.layer))};
  inputs_.resize(map.linears.size());
  Prepared& p = *prepared_;
  p.weights = model::empty_weights(spec_);
  p.owners.resize(map.linears.size());
  p.biases.resize(map.linears.size());
  p.experts.resize(map.linears.size());
  for (const LinearSlot& linear : map.linears)
    p.linears.push_back(std::get<Linear*>(linear.slot.find(p.weights, 0)));
  p.ones.assign(static_cast<size_t>(spec.hidden), 1);
  p.weights.norm = {host_tensor(p.ones.data(), DType::kF32, {spec.hidden}), spec.eps};
  refresh_all();
}

void LayerRunner::refresh_linear(size_t linear) {
  const LinearSlot& from = map_.linears[linear];
  Prepared& p = *prepared_;
  const int64_t in = from.slot.in, experts = from.slot.experts;
  Matrix all(from.slot.out * std::max<int64_t>(1, experts), in);
  std::vector<float>& bias = p.biases[linear];
  bias.clear();
  int64_t at = 0;
  for (const Piece& piece : from.pieces) {
    for (int64_t r = 0; r < piece.rows; ++r)
      std::copy_n(values_.units[piece.unit].row(piece.row + r) + piece.col, piece.cols,
                  all.row(at++));
    const std::vector<float>& own = values_.biases[piece.unit];
    bias.insert(bias.end(), own.begin(), own.end());
  }
  p.owners[linear].clear();
  const auto prepare = [&](Tensor weight, Tensor bias_of) {
    return base_.prepare({.weight = weight, .bias = bias_of}, {.dtype = DType::kF32},
                         &p.owners[linear].emplace_back());
  };
  if (experts == 0) {
    *p.linears[linear] = prepare(
        all.tensor(), bias.empty() ? Tensor{} : host_tensor(bias.data(), DType::kF32, {at}));
    return;
  }
  p.experts[linear].clear();
  for (int64_t e = 0; e < experts; ++e)
    p.experts[linear].push_back(
        prepare(all.tensor().row_range(e * from.slot.out, from.slot.out), {}));
  // Nobody multiplies by the stack as a whole; only its shape is looked at.
  *p.linears[linear] = {.weight = host_tensor(p.ones.data(), DType::kF32, {experts, 1, 1}),
                        .experts = experts};
}

void LayerRunner::refresh_all() {
  Prepared& p = *prepared_;
  for (size_t i = 0; i < map_.linears.size(); ++i) refresh_linear(i);
  p.plain_owners.clear();
  for (size_t i = 0; i < map_.plains.size(); ++i) {
    const model::Slot& slot = map_.plains[i].slot;
    for (const model::Slot& stack : map_.plains[i].stacks) {
      std::vector<float> heads = cut_heads(stack, values_.plains[i]);
      *std::get<Linear*>(stack.find(p.weights, 0)) = base_.prepare(
          {.weight = host_tensor(heads.data(), DType::kF32, {stack.experts, stack.out, stack.in}),
           .experts = stack.experts},
          {.dtype = DType::kF32}, &p.plain_owners.emplace_back());
    }
    if (!map_.plains[i].stacks.empty()) continue;
    const auto place = slot.find(p.weights, 0);
    auto* values = const_cast<float*>(values_.plains[i].data());
    if (slot.kind == model::Slot::kNorm)
      *std::get<Norm*>(place) = {host_tensor(values, DType::kF32, {slot.out}), slot.eps};
    else if (slot.kind == model::Slot::kVector)
      *std::get<Tensor*>(place) = host_tensor(values, DType::kF32, {slot.out});
    else
      *std::get<Linear*>(place) =
          base_.prepare({.weight = host_tensor(values, DType::kF32, {slot.out, slot.in})},
                        {.dtype = DType::kF32}, &p.plain_owners.emplace_back());
  }
}

void LayerRunner::run(Stream& stream, const WatchInputs& watch, std::optional<size_t> stop_after,
                      const TapOps::WatchKv& watch_kv) {
  for (size_t first = 0; first < stream.size();) {
    size_t count = 0;
    for (int64_t rows = 0; first + count < stream.size(); ++count) {
      rows += stream[first + count].rows;
      if (count > 0 && rows > kGroupRows) break;
    }
    int64_t most = 0;
    for (size_t i = first; i < first + count; ++i) most += stream[i].rows;
    TapOps tap(base_, spec_, static_cast<int>(most));
    for (size_t i = 0; i < map_.linears.size(); ++i) {
      if (map_.linears[i].slot.experts)
        tap.set_experts(*prepared_->linears[i], prepared_->experts[i]);
      if (inputs_[i]) tap.set_input(*prepared_->linears[i], *inputs_[i]);
    }
    run_group(stream, first, count, tap, watch, stop_after, watch_kv);
    first += count;
  }
}

void LayerRunner::run_group(Stream& stream, size_t first, size_t count, TapOps& tap,
                            const WatchInputs& watch, std::optional<size_t> stop_after,
                            const TapOps::WatchKv& watch_kv) {
  Matrix together(0, spec_.hidden);
  std::vector<int32_t> row_start = {0}, kv_len, positions, pages;
  int64_t longest = 0, num_pages = 0;
  for (size_t i = first; i < first + count; ++i) {
    const Matrix& one = stream[i];
    together.append_rows(one.row(0), one.rows);
    for (int32_t p = 0; p < one.rows; ++p) positions.push_back(p);
    row_start.push_back(static_cast<int32_t>(together.rows));
    kv_len.push_back(static_cast<int32_t>(one.rows));
    longest = std::max(longest, one.rows);
  }
  const int64_t most_pages = pages_for(longest);
  for (const int32_t length : kv_len)
    for (int64_t p = 0; p < most_pages; ++p)
      pages.push_back(p < pages_for(length) ? static_cast<int32_t>(num_pages++) : 0);
  const auto rows = static_cast<int>(together.rows);
  const auto tensor = [](std::vector<int32_t>& values, std::initializer_list<int64_t> shape) {
    return host_tensor(values.data(), DType::kI32, shape);
  };
  std::vector<int32_t> tokens(static_cast<size_t>(rows)), none(1);
  const auto seqs = static_cast<int64_t>(count);
  const RaggedBatch batch{.num_seqs = static_cast<int>(count),
                          .num_tokens = rows,
                          .max_rows = static_cast<int>(longest),
                          .max_kv = static_cast<int>(longest),
                          .tokens = tensor(tokens, {rows}),
                          .positions = tensor(positions, {rows}),
                          .row_start = tensor(row_start, {seqs + 1}),
                          .kv_len = tensor(kv_len, {seqs}),
                          .pages = tensor(pages, {seqs, most_pages}),
                          .out_rows = tensor(none, {0}),
                          .host_row_start = row_start,
                          .host_kv_len = kv_len};
  const model::KvCache cache(spec_, static_cast<int>(num_pages), kPage, {.dtype = DType::kF32},
                             Device{});
  Arena arena(Buffer(Device{}, model::Decoder::arena_bytes(spec_, DType::kF32, rows, 0, tap)));
  std::map<const Linear*, size_t> index;
  for (size_t i = 0; i < prepared_->linears.size(); ++i) index[prepared_->linears[i]] = i;
  const auto show = [&](const Site& site, const float* values, int64_t n) {
    if (const auto found = index.find(site.weight); watch && found != index.end())
      watch(found->second, site.expert, values, n);
  };
  tap.begin(&together, &prepared_->weights.norm,
            stop_after ? prepared_->linears[*stop_after] : nullptr, show, watch_kv);
  tap.begin_step(batch, {});
  comm::Mesh mesh = comm::make_solo_mesh();
  model::Decoder decoder(spec_, prepared_->weights, tap, mesh, DType::kF32);
  decoder.forward(batch, cache.layers(), arena);
  tap.wait(tap.mark());
  if (stop_after) return;
  int64_t at = 0;
  for (size_t i = first; i < first + count; ++i) {
    std::copy_n(together.row(at), stream[i].rows * spec_.hidden, stream[i].row(0));
    at += stream[i].rows;
  }
}

}  // namespace skiff::quantize
