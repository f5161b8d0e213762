#include "model/slots.h"

#include <gtest/gtest.h>

#include <set>

namespace skiff::model {
namespace {

const Gqa kPlain{.heads = 4, .kv_heads = 2, .head_dim = 8};
const Gqa kNormed{.heads = 4, .kv_heads = 2, .head_dim = 8, .qkv_bias = true, .qk_norm = true};
const Moe kShared{
    .router = {.experts = 6, .top_k = 2, .bias = true}, .width = 5, .shared_width = 7};
const Moe kAlways{.router = {.experts = 6, .top_k = 2, .always = 3}, .width = 5};

// One layer of each combination that differs.
ModelSpec mixed() {
  ModelSpec spec;
  spec.hidden = 24;
  spec.vocab = 40;
  spec.layers = {{.mixer = kPlain, .ffn = Dense{.width = 10}},
                 {.mixer = kNormed, .ffn = kShared},
                 {.mixer = kPlain, .ffn = kAlways},
                 {.mixer = kNormed, .ffn = Dense{.width = 10}}};
  return spec;
}

// Latent attention, with and without a low-rank vector for queries.
ModelSpec latent() {
  Mla mla{.heads = 3, .q_rank = 14, .kv_rank = 20, .nope_dim = 6, .rope_dim = 4, .v_dim = 5};
  ModelSpec spec = mixed();
  spec.layers = {{.mixer = mla, .ffn = Dense{.width = 10}}};
  mla.q_rank = 0;
  spec.layers.push_back({.mixer = mla, .ffn = Dense{.width = 10}});
  return spec;
}

const Slot& slot_named(const std::vector<Slot>& slots, std::string_view name, int layer) {
  for (const Slot& slot : slots)
    if (slot.name == name && slot.layer == layer) return slot;
  SKIFF_CHECK(false, "no slot {} in layer {}", name, layer);
}

TEST(Slots, WeightsHaveTheKindsOfTheSpec) {
  const ModelSpec spec = mixed();
  const ModelWeights weights = empty_weights(spec);
  ASSERT_EQ(weights.layers.size(), spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i)
    EXPECT_EQ(std::holds_alternative<MoeWeights>(weights.layers[i].ffn),
              std::holds_alternative<Moe>(spec.layers[i].ffn))
        << i;
}

TEST(Slots, EachHasAPlaceOfItsOwnAndOfItsKind) {
  const ModelSpec spec = mixed();
  ModelWeights weights = empty_weights(spec);
  std::set<const void*> places;
  for (const Slot& slot : slots_of(spec)) {
    const Slot::Place place = slot.place(weights);
    std::visit([&](const auto* member) { EXPECT_TRUE(places.insert(member).second) << slot.name; },
               place);
    EXPECT_EQ(std::holds_alternative<Linear*>(place), slot.kind == Slot::kLinear) << slot.name;
    EXPECT_EQ(std::holds_alternative<Norm*>(place), slot.kind == Slot::kNorm) << slot.name;
  }
  // embed, norm, head; two norms, qkv, out and two matrices of each dense layer; the q and k norms;
  // router, bias, two stacks and two shared matrices; router and two stacks.
  EXPECT_EQ(places.size(), 3u + 4 * 4 + 2 * 2 + 2 * 2 + 6 + 3);
}

TEST(Slots, PlacesAreTheMembersThatTheDecoderReads) {
  const ModelSpec spec = mixed();
  const std::vector<Slot> slots = slots_of(spec);
  ModelWeights weights = empty_weights(spec);
  const auto linear = [&](std::string_view name, int layer) {
    return std::get<Linear*>(slot_named(slots, name, layer).place(weights));
  };
  auto& gqa = std::get<GqaWeights>(weights.layers[1].mixer);
  auto& moe = std::get<MoeWeights>(weights.layers[1].ffn);
  auto& dense = std::get<DenseWeights>(weights.layers[3].ffn);
  EXPECT_EQ(linear("head", -1), &weights.head);
  EXPECT_EQ(linear("qkv", 1), &gqa.qkv);
  EXPECT_EQ(linear("out", 1), &gqa.out);
  EXPECT_EQ(linear("expert_gate_up", 1), &moe.gate_up);
  EXPECT_EQ(linear("expert_down", 1), &moe.down);
  EXPECT_EQ(linear("gate_up", 1), &moe.shared.gate_up);
  EXPECT_EQ(linear("down", 1), &moe.shared.down);
  EXPECT_EQ(linear("gate_up", 3), &dense.gate_up);
  EXPECT_EQ(linear("down", 3), &dense.down);
}

TEST(Slots, OnlyTheHeadIsTied) {
  ModelSpec spec = mixed();
  for (const bool tied : {false, true}) {
    spec.tied_head = tied;
    for (const Slot& slot : slots_of(spec))
      EXPECT_EQ(is_tied_head(slot, spec), tied && slot.name == "head") << slot.name;
  }
}

TEST(Slots, TheSharedExpertIsAsWideAsItsSlices) {
  const std::vector<Slot> slots = slots_of(mixed());
  const Slot gate_up = shared_slot(slot_named(slots, "expert_gate_up", 2));
  EXPECT_EQ(gate_up.name, "gate_up");
  EXPECT_EQ(gate_up.experts, 0);
  EXPECT_EQ(gate_up.out, 2 * 5 * 3);
  EXPECT_EQ(gate_up.in, 24);
  EXPECT_EQ(gate_up.parts, (std::vector<int64_t>{15, 15}));
  const Slot down = shared_slot(slot_named(slots, "expert_down", 2));
  EXPECT_EQ(down.name, "down");
  EXPECT_EQ(down.out, 24);
  EXPECT_EQ(down.in, 5 * 3);
  EXPECT_EQ(down.parts, (std::vector<int64_t>{24}));
}

TEST(Slots, LatentAttention) {
  const ModelSpec spec = latent();
  const std::vector<Slot> slots = slots_of(spec);
  ModelWeights weights = empty_weights(spec);
  std::set<const void*> places;
  for (const Slot& slot : slots)
    std::visit([&](const auto* member) { EXPECT_TRUE(places.insert(member).second) << slot.name; },
               slot.place(weights));
  // embed, norm, head; two norms and two dense matrices of each layer; five matrices and a norm of
  // each, and the norm of the queries' vector.
  EXPECT_EQ(places.size(), 3u + 2 * 4 + 2 * 6 + 1);
  EXPECT_EQ(slot_named(slots, "q_kv_latent", 0).parts, (std::vector<int64_t>{14, 24}));
  EXPECT_EQ(slot_named(slots, "kv_latent", 1).parts, (std::vector<int64_t>{24}));
  EXPECT_EQ(slot_named(slots, "q", 0).in, 14);
  EXPECT_EQ(slot_named(slots, "q", 1).in, 24);
  EXPECT_EQ(slot_named(slots, "q", 1).out, 3 * 10);
  EXPECT_EQ(slot_named(slots, "out", 1).in, 3 * 5);
  EXPECT_EQ(slot_named(slots, "kv_latent_norm", 1).eps, 1e-6f);
  EXPECT_EQ(slot_named(slots, "q_latent_norm", 0).eps, 1e-6f);
}

// Both stacks are cut from one stored weight [heads * (nope_dim + v_dim), kv_rank].
TEST(Slots, StacksOfHeadsAreCutFromOneWeight) {
  const std::vector<Slot> slots = slots_of(latent());
  for (const char* name : {"absorb", "value"}) {
    const Slot& stack = slot_named(slots, name, 1);
    EXPECT_EQ(stack.experts, 3);
    const Slot whole = cut_slot(stack);
    EXPECT_EQ(whole.name, "kv_up");
    EXPECT_EQ(whole.out, 3 * 11);
    EXPECT_EQ(whole.in, 20);
    EXPECT_EQ(whole.experts, 0);
  }
  EXPECT_EQ(slot_named(slots, "absorb", 1).shape().out, 20);
  EXPECT_EQ(slot_named(slots, "absorb", 1).in, 6);
  EXPECT_EQ(slot_named(slots, "value", 1).shape().out, 5);
  EXPECT_EQ(slot_named(slots, "value", 1).in, 20);
}

// A scheme that asks for another dtype than the checkpoint's has its way.
TEST(Slots, StoredFormsAreKeptUnlessASchemeAsksForOthers) {
  const std::vector<Slot> slots = slots_of(mixed());
  const WeightFormat fp8 = find_scheme("block_wise_fp8")->format;
  std::vector<StoredForm> stored(slots.size());
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i].kind == Slot::kLinear && !slots[i].wide) stored[i].format = fp8;
  SchemeChoice schemes;
  schemes.set(LayerKind::kExperts, find_scheme("wint4"));
  schemes.set(LayerKind::kAttention, find_scheme("block_wise_fp8"));
  const std::vector<Kept> kept = kept_slots(slots, uniform_precision(DType::kBF16), schemes, stored,
                                            [](const WeightFormat&) { return true; });
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!stored[i].format.quantized()) continue;
    const bool expert = slots[i].layer_kind == LayerKind::kExperts && slots[i].in % 2 == 0;
    EXPECT_EQ(kept[i].stored, !expert) << describe_slot(slots[i]);
    EXPECT_EQ(kept[i].format.dtype, expert ? DType::kI4 : DType::kF8E4M3);
  }
  EXPECT_TRUE(widened_formats(kept, stored).empty());
}

// They are multiplied as plain values, whatever the scheme says of attention.
TEST(Slots, StacksOfHeadsStayPlain) {
  SchemeChoice schemes;
  schemes.set(LayerKind::kAttention, find_scheme("wint8"));
  const std::vector<Slot> slots = slots_of(latent());
  const Precision precision = uniform_precision(DType::kBF16);
  EXPECT_TRUE(slot_named(slots, "q", 0).kept(precision, schemes).quantized());
  EXPECT_TRUE(slot_named(slots, "q_kv_latent", 0).kept(precision, schemes).quantized());
  for (const char* name : {"absorb", "value"}) {
    const Kept kept = slot_named(slots, name, 0).kept(precision, schemes);
    EXPECT_FALSE(kept.quantized());
    EXPECT_EQ(kept.format.dtype, DType::kBF16);
  }
}

}  // namespace
}  // namespace skiff::model
