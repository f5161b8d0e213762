#include "serve/service/new_sequences.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace skiff::service {

std::vector<NewSequence> sequences_of(OpenRequest& request) {
  std::vector<NewSequence> sequences;
  Prepared& prepared = request.prepared;
  if (!prepared.reasoning_end.empty()) request.prompt = prepared.prompt;
  const size_t n = request.sequences.size();
  for (size_t i = 0; i < n; ++i) {
    NewSequence sequence{.id = request.sequences[i].id,
                         .prompt = i + 1 < n ? prepared.prompt : std::move(prepared.prompt),
                         .params = prepared.params,
                         .stop = prepared.stop,
                         .priority = prepared.priority,
                         .cache = prepared.cache,
                         .pooling = prepared.pooling,
                         .reference = prepared.reference,
                         .origin = prepared.origin,
                         .replica = prepared.replica};
    sequence.params.seed += i;
    sequence.params.constraint = request.sequences[i].constraint;
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

NewSequence rest_of(const OpenRequest& request, size_t index, SeqId id) {
  const Prepared& prepared = request.prepared;
  const OpenSequence& sequence = request.sequences[index];
  NewSequence rest{.id = id,
                   .prompt = request.prompt,
                   .params = prepared.params,
                   .stop = prepared.stop,
                   .priority = prepared.priority,
                   .cache = prepared.cache,
                   .reference = prepared.reference};
  rest.prompt.insert(rest.prompt.end(), sequence.output.begin(), sequence.output.end());
  rest.params.constraint = sequence.constraint;
  rest.params.seed = mix64(prepared.params.seed + index);
  rest.params.min_tokens = std::max(0, prepared.params.min_tokens - sequence.generated);
  rest.params.prompt_logprobs = kNoLogprobs;
  rest.stop.max_tokens -= sequence.generated;
  rest.written = static_cast<int>(sequence.output.size());
  return rest;
}

}  // namespace skiff::service
