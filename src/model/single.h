// model/single.h -- runs one sequence through the decoder without a scheduler, for tests, for
// `predict --dump-logits`, and for comparing with other frameworks.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/decoder.h"
#include "model/kv_cache.h"
#include "model/loader.h"
#include "ops/upload.h"

namespace skiff::model {

class SingleSequence {
 public:
  // Allocates room for max_context positions and chunks of at most max_rows rows. The cache has the
  // dtype of the activations unless `kv` says otherwise. Model, ops and mesh must outlive it.
  SingleSequence(const LoadedModel& model, Ops& ops, comm::Mesh& mesh, DType act, int max_context,
                 int max_rows, const std::optional<KvFormat>& kv = std::nullopt);
  // Appends `tokens` (at most max_rows) and returns the logits of all their rows,
  // [tokens.size(), vocab], in host memory, valid until the next call.
  Tensor forward(std::span<const int32_t> tokens);
  int length() const { return length_; }

 private:
  const LoadedModel& model_;
  Ops& ops_;
  KvCache kv_;
  Arena arena_;
  Decoder decoder_;
  std::vector<int32_t> pages_;
  Upload upload_;
  Buffer logits_;  // empty where the host computes
  int length_ = 0;
};

}  // namespace skiff::model
