// ops/cuda/model_fit.h -- whether the kernels take the shapes of a model.
#pragma once
#include "arch/spec.h"

namespace skiff::cuda {

// Throws LoadError where a layer has a shape for which there is no kernel on the current device.
void check_model(const ModelSpec& spec);

}  // namespace skiff::cuda
