// model/formats/ccq.h -- weights of two bits by convolutional codes (Zhou et al., "CCQ:
// Convolutional Code for Extreme Low-bit Quantization in LLMs", arXiv 2507.07145), as FastDeploy
// stores experts under the name wint2.
#pragma once
#include "model/quantization.h"

namespace skiff::model {

// Four inputs a byte. A byte stands for a word of 15 bits, round(byte * code_scale + code_zp) of
// its output, whose overlapping six-bit windows are the four elements, less 32. Scales are for 64
// inputs: a code of four bits, of which a byte holds two, times the output's scale. Inputs must be
// a multiple of 64.
StoredFormat ccq_format();

}  // namespace skiff::model
