// apps/calibration.h -- the tokens on which `skiff quantize` calibrates and measures.
#pragma once
#include "apps/commands.h"
#include "quantize/job.h"

namespace skiff::apps {

// Reads --data, or lets the model write texts, and divides them in two by --seed. Throws LoadError
// and UsageError.
quantize::Data calibration_data(const Args& args, const std::string& folder,
                                const model::ModelConfig& model);

// What the model writes when it is asked the questions of this program, or, without a chat
// template, when it is asked nothing: `count` sequences of at most `length` tokens.
std::vector<quantize::Sequence> own_texts(const Args& args, const std::string& folder,
                                          const model::ModelConfig& model, int count, int length);

}  // namespace skiff::apps
