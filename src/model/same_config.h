// model/same_config.h -- whether the weights of another folder fit a model that runs.
#pragma once
#include "base/json.h"
#include "base/result.h"

namespace skiff::model {

// Ok if config.json `other` describes the model that `mine` does. Else the error names the first
// key that differs, with both values. Keys that say nothing of the model (the version of a library,
// a path, the dtype that values are stored in) are not compared.
Status check_same_config(const Json& mine, const Json& other);

}  // namespace skiff::model
