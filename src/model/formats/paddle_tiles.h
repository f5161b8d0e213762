// model/formats/paddle_tiles.h -- the order in which Paddle's weight_quantize leaves weights for
// the tensor cores of GPUs from Turing to Hopper, and in which FastDeploy stores them. It is one of
// 64 inputs at a time: those of two outputs (8 bits) or of four (4 bits) follow each other, and
// within them inputs that one thread multiplies together stand together.
#pragma once
#include "model/quantization.h"

namespace skiff::model {

// Elements of 8 bits with a scale for each output, or of 4 bits, in tiles. Inputs must be a
// multiple of 64 and outputs of two or four.
StoredFormat paddle_tiles_8();
StoredFormat paddle_tiles_4();

}  // namespace skiff::model
