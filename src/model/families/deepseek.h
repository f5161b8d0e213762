// model/families/deepseek.h -- what DeepSeek's families share: their attention, where experts
// begin, and the names of their tensors.
#pragma once
#include "model/family.h"

namespace skiff::model {

// Reads the latent attention of V2 and V3: DeepSeek-AI 2024, "DeepSeek-V2", 2.1.
Mla read_mla(const Fields& config, int max_context);

// Puts `moe` on the layers that have experts: from first_k_dense_replace (`first_dense` where there
// is no such key) on, those whose number is a multiple of moe_layer_freq.
void place_experts(ModelSpec& spec, const Fields& config, const Moe& moe, int first_dense);

// Reads the sizes of the experts. A checkpoint stores all shared experts as one wide block, which
// equals the sum of n_shared_experts of the routed width. The router has its numbers of experts and
// nothing else. Nothing where "n_routed_experts" is null: all layers are dense.
std::optional<Moe> read_experts(const Fields& config);

// Reads n_group and topk_group, which must leave enough experts for a token.
ExpertGroups read_groups(const Fields& config, const Router& router, ExpertGroups::Judge judge);

// Refuses a key whose value is there and is not `only`.
void expect_word(const Fields& config, std::string_view key, std::string_view only);

std::vector<NameRule> deepseek_names();

}  // namespace skiff::model
