#include "ops/cuda/sampling/sampling.h"

#include <algorithm>

#include "ops/cuda/check.h"
#include "ops/cuda/sampling/kernels.h"

namespace skiff::cuda {
namespace {

LogitArgs args_of(const Tensor& logits) {
  return {.data = logits.as<float>(),
          .stride = logits.row_stride,
          .rows = static_cast<int>(logits.rows()),
          .vocab = static_cast<int>(logits.cols())};
}

PageArgs args_of(const EditPages& pages) {
  SKIFF_CHECK(pages.token.contiguous() && pages.add.contiguous());
  return {.token = pages.token.as<int32_t>(),
          .add = pages.add.as<float>(),
          .size = static_cast<int>(pages.token.cols())};
}

DrawArgs args_of(const SampleBatch& batch) {
  return {.temperature = batch.temperature.as<float>(),
          .top_p = batch.top_p.as<float>(),
          .min_p = batch.min_p.as<float>(),
          .top_k = batch.top_k.as<int32_t>(),
          .seed = batch.seed.as<int64_t>(),
          .draw = batch.draw.as<int64_t>()};
}

SeenArgs args_of(const SeenTokens& seen) {
  SKIFF_CHECK(seen.lists.contiguous() && seen.lists.cols() % 2 == 0);
  return {.lists = reinterpret_cast<int2*>(seen.lists.as<int32_t>()),
          .stride = seen.lists.cols() / 2};
}

}  // namespace

void store_edits(const EditPages& pages, const EditChanges& changes, cudaStream_t stream) {
  if (changes.at.rows() == 0) return;
  start_changes(args_of(pages),
                {.at = changes.at.as<int32_t>(),
                 .token = changes.token.as<int32_t>(),
                 .add = changes.add.as<float>(),
                 .count = static_cast<int>(changes.at.rows())},
                stream);
}

void edit_logits(Tensor logits, const EditPages& pages, const LogitEdits& edits,
                 cudaStream_t stream) {
  if (edits.row.rows() == 0) return;
  start_edits(args_of(logits), args_of(pages),
              {.row = edits.row.as<int32_t>(),
               .page = edits.page.as<int32_t>(),
               .count = edits.count.as<int32_t>(),
               .first = edits.first.as<int32_t>(),
               .pieces = static_cast<int>(edits.row.rows())},
              stream);
}

void mask_logits(Tensor logits, Tensor rows, Tensor allowed, cudaStream_t stream) {
  SKIFF_CHECK_EQ(rows.rows(), allowed.rows());
  SKIFF_CHECK_EQ(allowed.cols(), (logits.cols() + 31) / 32);
  if (rows.rows() == 0) return;
  start_masks(args_of(logits),
              {.row = rows.as<int32_t>(),
               .allowed = allowed.as<int32_t>(),
               .stride = allowed.row_stride,
               .count = static_cast<int>(rows.rows())},
              stream);
}

void count_tokens(const SeenTokens& seen, Tensor slots, Tensor tokens, Tensor rows,
                  cudaStream_t stream) {
  SKIFF_CHECK_EQ(slots.rows(), rows.rows());
  if (slots.rows() == 0) return;
  start_counts(args_of(seen),
               {.slot = slots.as<int32_t>(),
                .token = tokens.as<int32_t>(),
                .row = rows.as<int32_t>(),
                .count = static_cast<int>(slots.rows())},
               stream);
}

void penalize(Tensor logits, const SeenTokens& seen, const Penalties& penalties,
              cudaStream_t stream) {
  if (penalties.row.rows() == 0) return;
  start_penalties(args_of(logits), args_of(seen),
                  {.row = penalties.row.as<int32_t>(),
                   .slot = penalties.slot.as<int32_t>(),
                   .divide = penalties.divide.as<float>(),
                   .once = penalties.once.as<float>(),
                   .each = penalties.each.as<float>(),
                   .rows = static_cast<int>(penalties.row.rows())},
                  stream);
}

void draw_logprobs(Tensor logits, const SampleBatch& batch, cudaStream_t stream) {
  if (logits.rows() > 0) start_draw_logprobs(args_of(logits), args_of(batch), stream);
}

void check_drafts(Tensor ids, Tensor target, Tensor draft, const DraftChecks& checks,
                  cudaStream_t stream) {
  SKIFF_CHECK_EQ(target.cols(), draft.cols());
  if (checks.row.rows() == 0) return;
  start_checks(ids.as<int32_t>(), args_of(target), args_of(draft),
               {.row = checks.row.as<int32_t>(),
                .draft_row = checks.draft_row.as<int32_t>(),
                .token = checks.token.as<int32_t>(),
                .keep = checks.keep.as<float>(),
                .instead = checks.instead.as<float>(),
                .count = static_cast<int>(checks.row.rows())},
               stream);
}

size_t Sampling::bytes(bool portable) {
  return portable || attribute(cudaDevAttrComputeCapabilityMajor) < 9 ? 0 : sample_bytes();
}

// Static shared memory takes some of a block's limit.
size_t max_shared() {
  constexpr size_t kVariables = 7 * 1024;
  return static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)) - kVariables;
}

Sampling::Sampling(void* memory, const Options& options)
    : memory_(memory),
      clusters_(bytes(options.portable) > 0),
      one_way_(options.one_way),
      shared_(options.shared > 0 ? std::min(options.shared, max_shared()) : max_shared()) {}

void Sampling::sample(Tensor out_ids, Tensor logits, const SampleBatch& batch,
                      cudaStream_t stream) {
  SKIFF_CHECK_EQ(out_ids.rows(), logits.rows());
  if (logits.rows() == 0) return;
  const LogitArgs args = args_of(logits);
  start_sample(out_ids.as<int32_t>(), args, args_of(batch),
               {clusters_, shared_, rows_at_once(args.vocab), memory_}, stream);
}

// The driver is asked once for each vocabulary: a head that drafts may have one of its own.
int Sampling::rows_at_once(int vocab) {
  if (!clusters_ || one_way_) return 0;
  const auto [known, is_new] = rows_at_once_.try_emplace(vocab, 0);
  if (is_new) known->second = sampled_at_once(vocab, shared_);
  return known->second;
}

void Sampling::logprobs(Tensor chosen_logprob, Tensor chosen_rank, Tensor top_ids,
                        Tensor top_logprobs, Tensor logits, Tensor chosen,
                        cudaStream_t stream) const {
  if (logits.rows() == 0) return;
  const bool some = static_cast<bool>(top_ids);
  SKIFF_CHECK(!some || top_ids.cols() <= logits.cols(), "best {} of {}", top_ids.cols(),
              logits.cols());
  start_logprobs(args_of(logits),
                 {.chosen = chosen.as<int32_t>(),
                  .chosen_logprob = chosen_logprob.as<float>(),
                  .chosen_rank = chosen_rank.as<int32_t>(),
                  .top_ids = some ? top_ids.as<int32_t>() : nullptr,
                  .top_logprobs = some ? top_logprobs.as<float>() : nullptr,
                  .top = some ? static_cast<int>(top_ids.cols()) : 0},
                 {.clusters = clusters_, .shared = shared_, .at_once = 0, .memory = nullptr},
                 stream);
}

}  // namespace skiff::cuda
