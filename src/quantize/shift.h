// quantize/shift.h -- biases that take up shifted values (Folding): the values of attention are
// shifted by their own bias, and the output makes up for that by its own. A model may have these
// two, or a switch in config.json that gives it both; norms have no bias that could take up more.
#pragma once
#include "base/json.h"
#include "quantize/layer.h"

namespace skiff::quantize {

// Throws a LoadError that names the flag where a layer has no place for such biases.
void check_shift(const ModelSpec& spec);
// Adds biases of zeros where the layer's attention has none.
void add_shift_biases(const LayerMap& map, LayerValues& values);
// Sets the switch in a model's config.json where it has one.
void note_shift_biases(const ModelSpec& spec, OrderedJson& config);

}  // namespace skiff::quantize
