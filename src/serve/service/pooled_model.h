// serve/service/pooled_model.h -- what a service whose model is pooled (--runner pooling) offers,
// and how the vectors that its engine gives become embeddings and scores.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "message/request.h"

namespace skiff::service {

struct PooledModel {
  enum Task { kEmbed, kClassify, kReward };
  Task task = kEmbed;
  Pooling pooling;              // what the engine is asked for; not kNone
  int width = 0;                // numbers of one result: of an embedding, or the number of classes
  bool normalize = true;        // kEmbed: unless a request says otherwise
  bool activation = true;       // kClassify: sigmoid of one class, softmax of several
  bool matryoshka = false;      // kEmbed: a request may ask for fewer dimensions
  std::vector<int> dimensions;  // those that it may ask for; empty: any
  std::vector<std::string> labels;  // names of classes; may be empty
  bool judges_pairs = false;        // pairs of texts get the prompt of Qwen3-Reranker
  // Returns whether it gives one number for a pair of texts: any embedding does, by its cosine.
  bool scores_pairs() const;
};

// Returns why `dimensions` cannot be had; ok for 0, which stands for all.
Status check_dimensions(const PooledModel& model, int dimensions);
// Keeps the first `dimensions` numbers (0: all), then divides by their Euclidean norm if asked.
std::vector<float> embedding_of(std::vector<float> pooled, int dimensions, bool normalize);
// Returns the scores of the classes: activated, unless `activation` is false.
std::vector<float> class_scores(std::vector<float> pooled, bool activation);
// Returns how well a pair fits, from what the head gives for it: of one class or, of two, of the
// second against the first.
float pair_score(const std::vector<float>& pooled, bool activation);
// Returns the cosine of the angle between two vectors; 0 if one has no length.
float cosine(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace skiff::service
