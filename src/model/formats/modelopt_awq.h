// model/formats/modelopt_awq.h -- four bits by activation-aware scaling (AWQ, arXiv 2306.00978) as
// NVIDIA ModelOpt stores them under the name W4A16_AWQ: two outputs a byte, signed, with a scale
// for each `group` inputs.
#pragma once
#include "model/quantization.h"

namespace skiff::model {

// A layer behind a norm has its inputs' factors in the norm and is `modelopt_awq`. Any other brings
// them as a tensor .pre_quant_scale: they multiply the columns of the weight, which then has no
// scales of groups any more and is widened.
StoredFormat modelopt_awq(int group);
StoredFormat modelopt_awq_with_factors(int group);

}  // namespace skiff::model
