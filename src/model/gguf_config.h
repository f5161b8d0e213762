// model/gguf_config.h -- what the metadata of a GGUF file say about a model, in the keys of a
// config.json.
#pragma once
#include <string>

#include "gguf/gguf.h"

namespace skiff::model {

// Throws a LoadError that names `where` and the key for an architecture or a setting that is not
// supported. "rope_interleaved" is true where rows of q and k lie so that rope turns neighbouring
// dimensions: llama.cpp permutes Llama's.
Json config_of_gguf(const GgufHeader& header, const std::string& where);

}  // namespace skiff::model
