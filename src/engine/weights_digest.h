// engine/weights_digest.h -- names for the bytes of a checkpoint, so that two sides can tell
// whether they hold the same weights.
#pragma once
#include <map>
#include <string>

namespace skiff::engine {

struct WeightsDigest {
  // SHA-256, in hexadecimal, of a line "NAME DTYPE SHAPE DIGEST" for each tensor, by rising name;
  // the shape is written as [2, 3]. It does not depend on how tensors are spread over files.
  std::string total;
  std::map<std::string, std::string> tensors;  // XXH3-128 of each one's bytes, in hexadecimal
};

// Reads the safetensors files of a model folder whole. Throws LoadError, as Checkpoint does.
WeightsDigest weights_digest(const std::string& folder);

}  // namespace skiff::engine
