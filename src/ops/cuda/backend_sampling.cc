// ops/cuda/backend_sampling.cc -- CudaOps: tokens, logits, draws and the checks of drafts.
#include "ops/cuda/backend.h"

#include "ops/cuda/rows/rows.h"

namespace skiff::cuda {

void CudaOps::load_tokens(Tensor tokens, Tensor last) {
  cuda::load_tokens(tokens, last, stream());
  done();
}

void CudaOps::store_tokens(Tensor last, Tensor slots, Tensor tokens) {
  cuda::store_tokens(last, slots, tokens, stream());
  done();
}

void CudaOps::store_edits(const EditPages& pages, const EditChanges& changes) {
  cuda::store_edits(pages, changes, stream());
  done();
}

void CudaOps::edit_logits(Tensor logits, const EditPages& pages, const LogitEdits& edits) {
  cuda::edit_logits(logits, pages, edits, stream());
  done();
}

void CudaOps::mask_logits(Tensor logits, Tensor rows, Tensor allowed) {
  cuda::mask_logits(logits, rows, allowed, stream());
  done();
}

void CudaOps::count_tokens(const SeenTokens& seen, Tensor slots, Tensor tokens, Tensor rows) {
  cuda::count_tokens(seen, slots, tokens, rows, stream());
  done();
}

void CudaOps::penalize(Tensor logits, const SeenTokens& seen, const Penalties& penalties) {
  cuda::penalize(logits, seen, penalties, stream());
  done();
}

void CudaOps::sample(Tensor out_ids, Tensor logits, const SampleBatch& batch) {
  sampling_.sample(out_ids, logits, batch, stream());
  done();
}

void CudaOps::draw_logprobs(Tensor logits, const SampleBatch& batch) {
  cuda::draw_logprobs(logits, batch, stream());
  done();
}

void CudaOps::check_drafts(Tensor ids, Tensor target, Tensor draft, const DraftChecks& checks) {
  cuda::check_drafts(ids, target, draft, checks, stream());
  done();
}

void CudaOps::settle_drafts(const DraftVerdicts& drafts, const DraftsSettled& out) {
  cuda::settle_drafts(drafts, out, stream());
  done();
}

void CudaOps::take_back(Tensor values, Tensor slots, Tensor amounts) {
  cuda::take_back(values, slots, amounts, stream());
  done();
}

void CudaOps::logprobs(Tensor chosen_logprob, Tensor chosen_rank, Tensor top_ids,
                       Tensor top_logprobs, Tensor logits, Tensor chosen) {
  sampling_.logprobs(chosen_logprob, chosen_rank, top_ids, top_logprobs, logits, chosen, stream());
  done();
}

}  // namespace skiff::cuda
