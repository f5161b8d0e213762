// ops/batch.h -- one step as kernels see it. Built once by the Runner, then read-only.
#pragma once
#include <span>

#include "tensor/tensor.h"
#include "weights/format.h"

namespace skiff {

// Sequences whose last steps checked drafts that the host does not know the verdict of.
constexpr int kMostMovedBack = 16;  // drafts of a sequence whose verdict the host does not know
struct MovedBack {
  Tensor slots;    // [num_seqs] i32: the slot of such a sequence, or -1; empty: there is none
  Tensor refused;  // [max_slots] i32: how many drafts of a slot's last step were not kept
};

// There is no prefill flag. A decode is a sequence with one row; a speculative check is one with
// 1+k rows; a prefill chunk is one with many. A sequence may have no rows at all. Rows from
// row_start[num_seqs] to num_tokens are padding: they belong to no sequence, store nothing, and
// their results are never read.
struct RaggedBatch {
  int num_seqs = 0, num_tokens = 0, max_rows = 0, max_kv = 0;
  Tensor tokens;     // [num_tokens] i32
  Tensor positions;  // [num_tokens] i32
  Tensor row_start;  // [num_seqs+1] i32; sequence s owns rows [row_start[s], row_start[s+1])
  Tensor kv_len;     // [num_seqs] i32; context length counting this step's rows
  Tensor pages;      // [num_seqs, max_pages] i32; position p of a sequence lies in page p /
                     // page_size of its row, at p % page_size
  Tensor out_rows;   // [num_out] i32; rows whose logits are needed
  // The values of row_start and kv_len in host memory, for planning launches.
  std::span<const int32_t> host_row_start, host_kv_len;
  // The rows of these sequences lie before the positions given here, by the number of refused
  // drafts: Ops::begin_step() moves `positions` and `kv_len` back by it where Ops computes, which
  // host_kv_len then may exceed. Such a sequence has few rows, and at least one.
  MovedBack moved_back;
};

// An array that the host made for a step: `from`, in page-locked host memory, is copied to `to`
// before the step begins. Both have one dtype, 4 or 8 bytes wide, and one shape; their rows may be
// strided. An empty pair stands for no copy.
struct Arrival {
  Tensor to, from;
};

// Copies beside other operations, see Ops::copy_beside().
struct CopiesBeside {
  uint64_t number = 0;          // counts up; 0: they are in order with all operations
  uint64_t begin = 0, end = 0;  // stamps before and behind them
};

// One layer of paged cache. A page begins on a multiple of 16 bytes, and pages may lie further
// apart than they are long: in a KvCache, a page's stride is a whole block with all layers.
struct KvLayer {
  Tensor k, v;  // [num_pages, page_size, kv_heads, head_dim], f32, bf16 or what `format` says; of
                // latents (Mla) k alone, of floats or, where quantized, of u8 (ops/latent_row.h)
  int page_size = 0;
  // A quantized cache has the scales of each token beside its page: bf16 [num_pages, kv_heads,
  // page_size, kv_scales()], see ops/kv_quant.h. With fixed scales, bf16 [kv_heads].
  KvFormat format;  // not needed where k and v are floats
  Tensor k_scale, v_scale;
};

// The sampling parameters of each row of logits. Every tensor is [rows].
struct SampleBatch {
  Tensor temperature, top_p, min_p;  // f32; temperature 0 or top_p 0: greedy
  Tensor top_k;                      // i32; <= 0: off
  Tensor seed, draw;                 // i64; the draw is a pure function of (seed, draw, logits)
};

// Lists of edits that stay where Ops computes from step to step, so that they are not sent in each
// one. They consist of pages of entries; a list may have many.
struct EditPages {
  Tensor token;  // [pages, size] i32
  Tensor add;    // [pages, size] f32; may be -inf
};
// Entries to be overwritten: change i is for entry at[i] = page * size + index; no entry occurs
// twice.
struct EditChanges {
  Tensor at, token;  // [n] i32
  Tensor add;        // [n] f32
};
// Drafts that were sampled, to be checked by Ops::check_drafts. Every tensor is [n]; no row occurs
// twice.
struct DraftChecks {
  Tensor row, draft_row, token;  // i32
  Tensor keep, instead;          // f32 in [0, 1): independent uniforms, for the verdict and for the
                                 // token that replaces one that is not kept
};

// The drafts of n sequences that were checked in one draw, of which sequence i has drafts[i]. Its
// rows of the step begin at row_start[i], and the drafts are the tokens of those behind the first.
// What the first row has drawn is drawn[i], what the j-th further one has, drawn[draws[i] + j].
struct DraftVerdicts {
  Tensor slots, drafts, draws;  // [n] i32; no slot occurs twice; slot -1: no sequence
  Tensor kept;                  // [n] i32: so many are kept; -1: those that equal what was drawn
  Tensor row_start;             // [n + 1 or more] i32
  Tensor tokens, drawn;         // [rows] and [drawn rows] i32
  Tensor moved_slots;           // MovedBack::slots of the step, or empty
};
// What follows from them.
struct DraftsSettled {
  Tensor last;     // [max_slots] i32: the token behind the drafts of a slot that are kept
  Tensor refused;  // [max_slots] i32, also read: how many are not
  Tensor
      moved;    // [max_slots] i32: that and, of sequences that moved back in this step, by how much
  Tensor next;  // [rows] i32: the token that follows each row; behind a refused draft any
  // [n or more] i32: the row of each sequence that the last draft that is kept stands in, or the
  // first one; behind these zeros, for padding.
  Tensor ends;
};

// Sparse changes to logits. Piece i adds the first count[i] entries of page[i] to the logits of
// row[i]. The pieces of one row name no token twice.
struct LogitEdits {
  Tensor row, page, count;  // [n] i32
  Tensor first;             // [n] i32; where not negative, the tokens are first, first + 1, ...
};

// The distinct tokens that the sequence of each slot has seen. They stay where Ops computes and are
// counted there, so that a draw need not wait until the host knows the token of the draw before.
struct SeenTokens {
  // [slots, 2 * (1 + most)] i32, contiguous. A slot's list begins with its number of entries and a
  // zero; an entry is a token and how often the output contains it, 0 if only the prompt does. No
  // token has two entries, and their order does not matter.
  Tensor lists;
};
// Row row[i] of logits is penalized for what slot[i] has seen: the logit x of each token of its
// list becomes (x > 0 ? x / divide[i] : x * divide[i]), less once[i] + each[i] * count where the
// count is not 0. No row occurs twice.
struct Penalties {
  Tensor row, slot;           // [n] i32
  Tensor divide, once, each;  // [n] f32
};

}  // namespace skiff
