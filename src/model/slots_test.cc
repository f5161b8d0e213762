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

}  // namespace
}  // namespace skiff::model
