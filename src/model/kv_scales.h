// model/kv_scales.h -- scales of an 8-bit KV cache that were calibrated with the checkpoint: for
// each layer one for each KV head, of keys and of values.
//
// Where they are stored, by who writes them:
//   ...self_attn.k_scale, .v_scale                  compressed-tensors, AutoFP8: one number, or one
//                                                   for each KV head; max / 448 of eight-bit
//                                                   floats, max / 127 of integers
//   ...self_attn.kv_scale                           older ones: one number for keys and values
//   ...self_attn.k_proj.k_scale, v_proj.v_scale     ModelOpt: max / 448
//   ...self_attn.k_proj.output_scale, v_proj...     AutoFP8 before August 2024: max / 448
//   ...self_attn.cachek_matmul.activation_scale, cachev_matmul...   FastDeploy: max
//   cachekv_scales.json (cachekv_act_scales.json)   PaddleNLP: max, a number or a list, under
//                                                   "...layers.N.self_attn.cachek_matmul..."
// A list with a number for each query head has them in groups, of which the first one counts.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "ops/kv_quant.h"

namespace skiff::model {

struct KvScales {
  std::vector<float> k, v;  // [kv_heads]: an element counts so much
};

// The files in which PaddleNLP puts them.
constexpr std::array<std::string_view, 2> kKvScaleFiles = {"cachekv_scales.json",
                                                           "cachekv_act_scales.json"};

// Returns whether a tensor is such a scale, by its name.
bool is_kv_scale(std::string_view name);

// Returns the scales of all layers for a cache of `dtype`, kI8 or kF8E4M3; nothing where the
// checkpoint has none. Throws a LoadError that names the tensor or the key where one of several is
// missing, of another number than the KV heads, or out of the range of ops/kv_quant.h.
std::optional<std::vector<KvScales>> read_kv_scales(const std::string& dir,
                                                    const ModelConfig& config, DType dtype);

// Returns whether the scales say nothing: all are 1, as writers leave them that calibrated nothing.
bool are_placeholders(const std::vector<KvScales>& scales);

}  // namespace skiff::model
