// apps/pooled_model.h -- what a server offers of a model that is pooled.
#pragma once
#include <optional>

#include "model/config.h"
#include "serve/service/pooled_model.h"
#include "text/tokenizer.h"

namespace skiff::apps {

// Nothing for a model that generates. Throws LoadError where a token that stands for a class is not
// in the vocabulary.
std::optional<service::PooledModel> pooled_model(const model::ModelConfig& model,
                                                 const text::Tokenizer& tokenizer);

}  // namespace skiff::apps
