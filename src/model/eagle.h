// model/eagle.h -- heads that draft for a model from its hidden rows: EAGLE (Li et al. 2024,
// "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty") and EAGLE 3 (Li et al.
// 2025, "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time
// Test").
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace skiff::model {

// Tensors of a head of EAGLE 3: for each row of its head how much larger the token is than the
// row's number, i64; and for each token whether there is a row, which says nothing more.
inline constexpr std::string_view kDraftIds = "d2t", kIsDrafted = "t2d";

// Reads the head in `folder`, of EAGLE 3 if `third`, for `served`; its spec joins. Throws a
// LoadError if there is none, or if its sizes differ.
ModelConfig find_eagle(const std::string& folder, bool third, const ModelConfig& served);

// Returns the taps (ModelSpec::taps) that a head of EAGLE 3 takes of a model: those that its
// configuration names, each the number of layers before it, or else the three of the paper's code.
// Throws a LoadError if the model has no such layers.
std::vector<int> eagle_taps(const std::string& folder, const ModelSpec& served);

// Returns the tokens that the rows of a head of EAGLE 3 stand for; empty if row i is token i.
// Throws a LoadError if one is no token of `spec`.
std::vector<int32_t> eagle_tokens(const std::string& folder, const ModelSpec& spec);

}  // namespace skiff::model
