// model/gguf_config.h -- what the metadata of a GGUF file say about a model, in the keys of a
// config.json.
#pragma once
#include <string>
#include <string_view>

#include "arch/spec.h"
#include "gguf/gguf_files.h"

namespace skiff::model {

// Throws a LoadError that names `where` and the key for an architecture or a setting that is not
// supported. "rope_interleaved" is true where rows of q and k lie so that rope turns neighbouring
// dimensions: llama.cpp permutes Llama's.
Json config_of_gguf(const GgufHeader& header, const std::string& where);

// Lists the types of the tensors and how many have each, those with the most bytes first.
std::string types_of_gguf(const GgufHeader& header);

// The tensor of the factors by which rope is slowed, one for each pair of dimensions, into which
// writers turn the scaling of Llama 3.1.
constexpr std::string_view kGgufRopeFactors = "rope_freqs.weight";
// Applies the factors of the model, if it has any, to all layers. Throws a LoadError that names the
// tensor where its type, its size or a value is not right.
void scale_gguf_rope(ModelSpec& spec, const GgufModel& model);

}  // namespace skiff::model
