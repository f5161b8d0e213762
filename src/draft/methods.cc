#include "draft/methods.h"

#include <algorithm>

#include "draft/ngram.h"
#include "draft/suffix.h"

namespace skiff::draft {
namespace {

constexpr Method kMethods[] = {
    {"ngram", make_ngram},
    {"suffix", make_suffix},
    // PaddleNLP's name: what it refers to are the prompt, the output and the request's reference.
    {"inference_with_reference", make_ngram},
};

}  // namespace

std::span<const Method> methods() { return kMethods; }

bool has_weights(std::string_view method) {
  return std::ranges::find(kWithWeights, method) != std::end(kWithWeights);
}

const Method* find_method(std::string_view name) {
  const auto found = std::ranges::find(kMethods, name, &Method::name);
  return found == std::end(kMethods) ? nullptr : &*found;
}

}  // namespace skiff::draft
