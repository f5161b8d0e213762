#include "model/slots.h"

namespace skiff {
namespace {

class SlotList {
 public:
  explicit SlotList(const ModelSpec& spec) : spec_(spec) {}

  std::vector<Slot> take() && { return std::move(slots_); }
  void layer(int index) { layer_ = index; }

  void table(std::string_view name, int64_t rows, int64_t cols) {
    slots_.push_back({.kind = Slot::kTable,
                      .name = name,
                      .layer = layer_,
                      .out = rows,
                      .in = cols,
                      .parts = {rows}});
  }
  void norm(std::string_view name, int64_t dim) {
    slots_.push_back({.kind = Slot::kNorm,
                      .name = name,
                      .layer = layer_,
                      .out = dim,
                      .parts = {dim},
                      .eps = spec_.eps});
  }
  void vector(std::string_view name, int64_t dim) {
    slots_.push_back(
        {.kind = Slot::kVector, .name = name, .layer = layer_, .out = dim, .parts = {dim}});
  }
  void linear(std::string_view name, std::vector<int64_t> parts, int64_t in, bool bias = false) {
    stack(name, std::move(parts), in, {}, bias);
  }
  void stack(std::string_view name, std::vector<int64_t> parts, int64_t in, const Router& router,
             bool bias = false) {
    int64_t out = 0;
    for (int64_t rows : parts) out += rows;
    slots_.push_back({.kind = Slot::kLinear,
                      .name = name,
                      .layer = layer_,
                      .experts = router.total(),
                      .always = router.always,
                      .out = out,
                      .in = in,
                      .parts = std::move(parts),
                      .bias = bias});
  }

  void add(const Gqa& m) {
    const int64_t q = int64_t{m.heads} * m.head_dim, kv = int64_t{m.kv_heads} * m.head_dim;
    linear("qkv", {q, kv, kv}, spec_.hidden, m.qkv_bias);
    linear("out", {spec_.hidden}, q, m.out_bias);
    if (!m.qk_norm) return;
    norm("q_norm", m.head_dim);
    norm("k_norm", m.head_dim);
  }
  void add(const Dense& f) { gated(f.width, f.bias); }
  void add(const Moe& f) {
    const int64_t experts = f.router.experts, width = f.width;
    linear("router", {experts}, spec_.hidden);
    slots_.back().wide = true;
    if (f.router.bias) vector("router_bias", experts);
    stack("expert_gate_up", {width, width}, spec_.hidden, f.router);
    stack("expert_down", {spec_.hidden}, width, f.router);
    if (f.shared_width) gated(f.shared_width, false);
  }

 private:
  void gated(int64_t width, bool bias) {
    linear("gate_up", {width, width}, spec_.hidden, bias);
    linear("down", {spec_.hidden}, width, bias);
  }

  const ModelSpec& spec_;
  int layer_ = -1;
  std::vector<Slot> slots_;
};

}  // namespace

Slot shared_slot(const Slot& stack) {
  const bool gated = stack.name == "expert_gate_up";
  Slot wide = stack;
  wide.name = gated ? "gate_up" : "down";
  wide.experts = wide.always = 0;
  int64_t& cut = gated ? wide.out : wide.in;
  cut *= stack.always;
  if (gated)
    for (int64_t& rows : wide.parts) rows *= stack.always;
  return wide;
}

std::vector<Slot> slots_of(const ModelSpec& spec) {
  SlotList list(spec);
  list.table("embed", spec.vocab, spec.hidden);
  list.norm("norm", spec.hidden);
  list.linear("head", {spec.vocab}, spec.hidden);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    list.layer(static_cast<int>(i));
    list.norm("mixer_norm", spec.hidden);
    std::visit([&](const auto& mixer) { list.add(mixer); }, spec.layers[i].mixer);
    list.norm("ffn_norm", spec.hidden);
    std::visit([&](const auto& ffn) { list.add(ffn); }, spec.layers[i].ffn);
  }
  return std::move(list).take();
}

bool is_tied_head(const Slot& slot, const ModelSpec& spec) {
  return spec.tied_head && slot.name == "head";
}

Linear& linear_at(ModelWeights& weights, const Slot& slot) {
  if (slot.name == "head") return weights.head;
  LayerWeights& w = weights.layers.at(static_cast<size_t>(slot.layer));
  if (slot.name == "qkv") return w.qkv;
  if (slot.name == "out") return w.out;
  if (slot.name == "gate_up") return w.gate_up;
  if (slot.name == "down") return w.down;
  if (slot.name == "router") return w.router;
  if (slot.name == "expert_gate_up") return w.expert_gate_up;
  SKIFF_CHECK(slot.name == "expert_down", "no linear slot {}", slot.name);
  return w.expert_down;
}

Norm& norm_at(ModelWeights& weights, const Slot& slot) {
  if (slot.name == "norm") return weights.norm;
  LayerWeights& w = weights.layers.at(static_cast<size_t>(slot.layer));
  if (slot.name == "mixer_norm") return w.mixer_norm;
  if (slot.name == "ffn_norm") return w.ffn_norm;
  if (slot.name == "q_norm") return w.q_norm;
  SKIFF_CHECK(slot.name == "k_norm", "no norm slot {}", slot.name);
  return w.k_norm;
}

Tensor& tensor_at(ModelWeights& weights, const Slot& slot) {
  if (slot.name == "embed") return weights.embed;
  SKIFF_CHECK(slot.name == "router_bias", "no tensor slot {}", slot.name);
  return weights.layers.at(static_cast<size_t>(slot.layer)).router_bias;
}

}  // namespace skiff
