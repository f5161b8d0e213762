#include "model/slots.h"

#include <algorithm>
#include <map>
#include <type_traits>

#include "model/mtp.h"

namespace skiff::model {
namespace {

template <class T, class M>
T class_of(M T::*);

template <class T, class... Kinds>
constexpr bool is_kind_of(std::type_identity<std::variant<Kinds...>>) {
  return (std::is_same_v<T, Kinds> || ...);
}

// Returns the part of a model's weights that is a T: all of it, a layer, or one of its blocks.
template <class T>
T& part(ModelWeights& weights, size_t layer) {
  if constexpr (std::is_same_v<T, ModelWeights>) {
    return weights;
  } else {
    LayerWeights& w = weights.layers.at(layer);
    if constexpr (std::is_same_v<T, LayerWeights>)
      return w;
    else if constexpr (is_kind_of<T>(std::type_identity<decltype(w.mixer)>{}))
      return std::get<T>(w.mixer);
    else
      return std::get<T>(w.ffn);
  }
}

// Follows a path of member pointers to its end.
template <auto First, auto... Rest>
auto& follow(auto& from) {
  if constexpr (sizeof...(Rest) == 0)
    return from.*First;
  else
    return follow<Rest...>(from.*First);
}

template <class Member, auto First, auto... Rest>
Slot::Place find(ModelWeights& weights, size_t layer) {
  Member& member = follow<First, Rest...>(part<decltype(class_of(First))>(weights, layer));
  return &member;
}

class SlotList {
 public:
  explicit SlotList(const ModelSpec& spec) : spec_(spec) {}

  std::vector<Slot> take() && { return std::move(slots_); }
  void layer(int index) { layer_ = index; }

  template <auto... Path>
  void table(std::string_view name, int64_t rows, int64_t cols) {
    slots_.push_back({.kind = Slot::kTable,
                      .find = find<Tensor, Path...>,
                      .name = name,
                      .layer = layer_,
                      .out = rows,
                      .in = cols,
                      .parts = {rows}});
  }
  template <auto... Path>
  Slot& norm(std::string_view name, int64_t dim) {
    slots_.push_back({.kind = Slot::kNorm,
                      .find = find<Norm, Path...>,
                      .name = name,
                      .layer = layer_,
                      .out = dim,
                      .parts = {dim},
                      .eps = spec_.eps});
    return slots_.back();
  }
  template <auto... Path>
  void vector(std::string_view name, int64_t dim) {
    slots_.push_back({.kind = Slot::kVector,
                      .find = find<Tensor, Path...>,
                      .name = name,
                      .layer = layer_,
                      .out = dim,
                      .parts = {dim}});
  }
  template <auto... Path>
  Slot& linear(std::string_view name, const std::vector<int64_t>& parts, int64_t in,
               bool bias = false) {
    int64_t out = 0;
    for (int64_t rows : parts) out += rows;
    slots_.push_back({.kind = Slot::kLinear,
                      .find = find<Linear, Path...>,
                      .name = name,
                      .layer = layer_,
                      .out = out,
                      .in = in,
                      .parts = parts,
                      .bias = bias});
    return slots_.back();
  }
  template <auto... Path>
  Slot& stack(std::string_view name, std::vector<int64_t> parts, int64_t in, const Router& router) {
    Slot& slot = linear<Path...>(name, std::move(parts), in);
    slot.layer_kind = LayerKind::kExperts;
    slot.experts = router.total();
    slot.first = router.before;
    slot.always = router.always;
    return slot;
  }

  void add(const Gqa& m) {
    const int64_t q = int64_t{m.heads} * m.head_dim, kv = int64_t{m.kv_heads} * m.head_dim;
    linear<&GqaWeights::qkv>("qkv", {q, kv, kv}, mixer_in(), m.qkv_bias).layer_kind =
        LayerKind::kAttention;
    linear<&GqaWeights::out>("out", {spec_.hidden}, q, m.out_bias).layer_kind =
        LayerKind::kAttention;
    if (!m.qk_norm) return;
    norm<&GqaWeights::q_norm>("q_norm", m.head_dim);
    norm<&GqaWeights::k_norm>("k_norm", m.head_dim);
  }
  // The low-rank norms have an eps of their own in every published implementation.
  void add(const Mla& m) {
    constexpr float kEps = 1e-6f;
    const int64_t heads = m.heads, q_input = m.q_rank ? m.q_rank : spec_.hidden;
    if (m.q_rank) {
      linear<&MlaWeights::latent>("q_kv_latent", {m.q_rank, m.cached_dim()}, spec_.hidden)
          .layer_kind = LayerKind::kAttention;
      norm<&MlaWeights::q_norm>("q_latent_norm", m.q_rank).eps = kEps;
    } else {
      linear<&MlaWeights::latent>("kv_latent", {m.cached_dim()}, spec_.hidden).layer_kind =
          LayerKind::kAttention;
    }
    linear<&MlaWeights::q>("q", {heads * m.q_dim()}, q_input).layer_kind = LayerKind::kAttention;
    norm<&MlaWeights::kv_norm>("kv_latent_norm", m.kv_rank).eps = kEps;
    const int64_t each = m.nope_dim + m.v_dim;
    head_stack<&MlaWeights::absorb>("absorb", heads, m.kv_rank, m.nope_dim).heads = {
        .name = "kv_up", .each = each, .first = 0, .transposed = true};
    head_stack<&MlaWeights::value>("value", heads, m.v_dim, m.kv_rank).heads = {
        .name = "kv_up", .each = each, .first = m.nope_dim, .transposed = false};
    linear<&MlaWeights::out>("out", {spec_.hidden}, heads * m.v_dim).layer_kind =
        LayerKind::kAttention;
  }
  void add(const Dense& f) { gated<>(f.width, f.bias); }
  void add(const Moe& f) {
    const int64_t experts = f.router.experts, width = f.width;
    linear<&MoeWeights::router>("router", {experts}, spec_.hidden).wide = true;
    if (f.router.bias) vector<&MoeWeights::router_bias>("router_bias", experts);
    Slot& gate_up =
        stack<&MoeWeights::gate_up>("expert_gate_up", {width, width}, spec_.hidden, f.router);
    gate_up.shared_name = "gate_up";
    Slot& down = stack<&MoeWeights::down>("expert_down", {spec_.hidden}, width, f.router);
    down.shared_name = "down";
    down.slices = Slot::kColumns;
    if (f.shared_width) gated<&MoeWeights::shared>(f.shared_width, false);
  }

 private:
  int64_t mixer_in() const {
    return layer_ == 0 && spec_.joins && spec_.join == ModelSpec::kBeside ? 2 * spec_.hidden
                                                                          : spec_.hidden;
  }
  // Adds a matrix for each head, which Ops::heads_linear() multiplies as plain values.
  template <auto... Path>
  Slot& head_stack(std::string_view name, int64_t heads, int64_t out, int64_t in) {
    Slot& slot = linear<Path...>(name, {out}, in);
    slot.experts = heads;
    slot.plain = true;
    return slot;
  }
  // Adds the weights of a gated feed-forward block; the path Holder leads to its DenseWeights.
  template <auto... Holder>
  void gated(int64_t width, bool bias) {
    linear<Holder..., &DenseWeights::gate_up>("gate_up", {width, width}, spec_.hidden, bias);
    linear<Holder..., &DenseWeights::down>("down", {spec_.hidden}, width, bias);
  }

  const ModelSpec& spec_;
  int layer_ = -1;
  std::vector<Slot> slots_;
};

}  // namespace

std::string describe_slot(const Slot& slot) {
  if (slot.layer < 0) return std::string(slot.name);
  return fmt::format("{} of layer {}", slot.name, slot.layer);
}

Kept Slot::kept(const Precision& precision, const SchemeChoice& schemes) const {
  if (kind != kLinear || wide || plain)
    return {.format = {.dtype = dtype(precision.act)}, .rule = {}};
  const Scheme* scheme = schemes.of(layer_kind);
  const auto format = scheme ? scheme->format_for(in) : std::nullopt;
  if (!format) return {.format = precision.weights, .rule = {}};
  return {.format = *format, .rule = scheme->rule};
}

std::vector<Kept> kept_slots(const std::vector<Slot>& slots, const Precision& precision,
                             const SchemeChoice& schemes, std::span<const StoredForm> stored,
                             const Multiplies& multiplies) {
  SKIFF_CHECK(stored.empty() || stored.size() == slots.size(), "{} forms of {} slots",
              stored.size(), slots.size());
  std::vector<Kept> all;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Kept asked = slots[i].kept(precision, schemes);
    const bool quantized = !stored.empty() && stored[i].format.quantized();
    const bool again = quantized && asked.rule && asked.format.dtype != stored[i].format.dtype;
    if (quantized && !again && multiplies(stored[i].format))
      all.push_back({.format = stored[i].format, .stored = true, .order = stored[i].order});
    else
      all.push_back(asked);
  }
  return all;
}

std::vector<WeightFormat> quantized_formats(std::span<const Kept> kept) {
  std::vector<WeightFormat> formats;
  for (const Kept& k : kept)
    if (k.quantized() && std::ranges::find(formats, k.format) == formats.end())
      formats.push_back(k.format);
  return formats;
}

std::vector<std::string> widened_formats(std::span<const Kept> kept,
                                         std::span<const StoredForm> stored) {
  std::map<std::string, int> counts;
  for (size_t i = 0; i < stored.size(); ++i) {
    if (!stored[i].lost.empty()) ++counts[stored[i].lost];
    if (stored[i].format.quantized() && !kept[i].quantized()) ++counts[describe(stored[i].format)];
  }
  std::vector<std::string> lines;
  lines.reserve(counts.size());
  for (const auto& [form, count] : counts)
    lines.push_back(fmt::format("{} weights are {}", count, form));
  return lines;
}

Slot cut_slot(const Slot& stack) {
  Slot whole = stack;
  whole.name = stack.heads->name;
  whole.heads.reset();
  whole.experts = 0;
  whole.out = stack.experts * stack.heads->each;
  whole.in = stack.heads->transposed ? stack.out : stack.in;
  whole.parts = {whole.out};
  return whole;
}

Slot shared_slot(const Slot& stack) {
  Slot wide = stack;
  wide.name = stack.shared_name;
  wide.experts = wide.always = 0;
  if (stack.slices == Slot::kColumns) {
    wide.in *= stack.always;
    return wide;
  }
  wide.out *= stack.always;
  for (int64_t& rows : wide.parts) rows *= stack.always;
  return wide;
}

namespace {

void add_scores(SlotList& list, const ModelSpec& spec) {
  const int inner = spec.score_width;
  if (inner)
    list.linear<&ModelWeights::score_inner>("score_inner", {inner}, spec.hidden, true).wide = true;
  list.linear<&ModelWeights::head>("score", {spec.classes}, inner ? inner : spec.hidden, inner > 0)
      .wide = true;
}

}  // namespace

std::vector<Slot> slots_of(const ModelSpec& spec, int ranks) {
  SlotList list(spec);
  const bool beside = spec.joins && spec.join == ModelSpec::kBeside;
  if (spec.joins) {
    if (spec.join != ModelSpec::kPlain) {
      list.norm<&ModelWeights::token_norm>("token_norm", spec.hidden);
      list.norm<&ModelWeights::hidden_norm>("hidden_norm", spec.hidden);
    }
    const int64_t rows = beside ? spec.join_rows : 2;
    list.linear<&ModelWeights::join>("join", {spec.hidden}, rows * spec.hidden, spec.join_bias);
  } else {
    list.table<&ModelWeights::embed>("embed", spec.vocab, spec.hidden);
  }
  if (!spec.joins || has_own_norm(spec)) list.norm<&ModelWeights::norm>("norm", spec.hidden);
  if (spec.head == HeadKind::kVocab && (!spec.joins || beside))
    list.linear<&ModelWeights::head>("head", {spec.head_rows() / ranks}, spec.hidden).layer_kind =
        LayerKind::kHead;
  if (spec.head == HeadKind::kClasses) add_scores(list, spec);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    list.layer(static_cast<int>(i));
    if (i > 0 || !spec.joins || spec.join == ModelSpec::kNormed)
      list.norm<&LayerWeights::mixer_norm>("mixer_norm", spec.hidden);
    std::visit([&](const auto& mixer) { list.add(mixer); }, spec.layers[i].mixer);
    list.norm<&LayerWeights::ffn_norm>("ffn_norm", spec.hidden);
    std::visit([&](const auto& ffn) { list.add(ffn); }, spec.layers[i].ffn);
  }
  return std::move(list).take();
}

bool is_tied_head(const Slot& slot, const ModelSpec& spec) {
  return spec.tied_head && spec.head == HeadKind::kVocab &&
         slot.find == find<Linear, &ModelWeights::head>;
}

}  // namespace skiff::model
