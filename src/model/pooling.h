// model/pooling.h -- whether a model is served to be pooled (embeddings, scores) instead of to
// generate, and how: from the flags, the architecture and the files of sentence-transformers.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/spec.h"
#include "base/json.h"

namespace skiff::model {

// What the vector of a text is for: the row itself, or scores of classes. kReward: the scores are
// raw.
enum class PoolTask { kEmbed, kClassify, kReward };
// The rows behind the last norm that it is made of.
enum class PoolRows { kLast, kFirst, kMean };

struct PoolingConfig {
  PoolTask task = PoolTask::kEmbed;
  PoolRows rows = PoolRows::kLast;
  bool normalize = true;   // kEmbed: vectors have length 1 unless a request says otherwise
  bool activation = true;  // kClassify: sigmoid of one class, softmax of several
  // kEmbed: shorter vectors that begin like the whole one are embeddings, too. The lengths that the
  // model was trained for; empty: any.
  bool matryoshka = false;
  std::vector<int> dimensions;
  std::vector<std::string> labels;  // names of the classes, or none
  // kClassify: the classes are the logits of these tokens instead of a head of their own. Of two,
  // the second one is the class that is asked for.
  std::vector<std::string> tokens;
  bool judges_pairs = false;  // pairs of texts are put into the prompt of Qwen3-Reranker
};

// What the flags --runner, --convert and --override-pooler-config say.
struct PoolingChoice {
  std::string runner = "auto";   // auto | generate | pooling
  std::string convert = "auto";  // auto | none | embed | classify | reward
  std::string pooler;            // JSON: pooling_type, normalize, ...; may be empty
};

// The name of an architecture as the class with a language head is called, and which class of it
// the checkpoint was stored from.
struct Architecture {
  // kRewarder: with a head of two layers (Qwen2.5-Math-RM).
  enum Class { kCausal, kClassifier, kRewarder, kBare } kind = kCausal;
  std::string causal;  // "Qwen3ForCausalLM" for Qwen3ForSequenceClassification and Qwen3Model
};
Architecture read_architecture(std::string_view name);

// The pooling that modules.json and the file of its Pooling module describe. Throws LoadError for
// what is not supported.
struct SentenceModules {
  PoolRows rows = PoolRows::kLast;
  bool normalize = false;
};
// Returns the folder of the Pooling module, if there is one, and fills `normalize`.
std::optional<std::string> read_modules(const Json& modules, const std::string& where,
                                        SentenceModules& out);
PoolRows read_pooling_mode(const Json& config, const std::string& where);

// Returns how the model is pooled, and sets the spec's head accordingly; nothing if it generates.
// `dir` is empty for a model that is not a folder. Throws LoadError where flags, architecture and
// files contradict each other.
std::optional<PoolingConfig> choose_pooling(const std::string& dir, const Fields& config,
                                            const Architecture& architecture,
                                            const PoolingChoice& choice, ModelSpec& spec);

}  // namespace skiff::model
