// ops/cpu/attend_context.h -- what one call of attention works on, and the two ways to attend to a
// block of positions: in vectors of floats, or, for queries and a cache of bf16, in tiles.
#pragma once
#include <algorithm>

#include "ops/cpu/attend.h"
#include "ops/cpu/attend_state.h"
#include "ops/cpu/isa/kernels.h"
#include "ops/cpu/paging.h"

namespace skiff::cpu {

// Rows of one sequence at rising positions, and the pieces that they see.
struct RowBlock {
  int seq;
  int32_t row, rows;
  int64_t first_piece, pieces;
};

// Kv heads [first, first + count) that one task works on. A task with few rows takes many heads,
// so that it reads whole pages of the cache and not one head's stripe through all of them.
struct Heads {
  int first, count;
};

struct Context {
  const Kernels& kernels;
  const AttendCall& call;
  const RaggedBatch& batch;
  const KvLayer& kv;
  int64_t o_stride;
  bool tiles;

  int64_t position(int64_t row) const { return batch.positions.as<int32_t>()[row]; }
  int64_t first_seen(int64_t row) const {
    const int window = call.shape.window;
    return window > 0 ? std::max<int64_t>(0, position(row) - window + 1) : 0;
  }
  int group() const { return call.shape.group(); }
  int queries(const RowBlock& b) const { return b.rows * group(); }
};

// Where the positions of a span begin, and their scales if they have any.
struct Found {
  const void* row[kKvBlock];
  const uint16_t* scale[kKvBlock];
};
// Finds positions [first, first + count) of one kv head in `cache`, whose scales are `scales`.
void find_rows(const Context& c, int seq, const Tensor& cache, const Tensor& scales, int head,
               int64_t first, int count, Found& out);

// The rows of a block that see positions [first, end), and how far the last of them sees.
struct Seeing {
  int32_t from, to;
  int keys;
};
Seeing rows_that_see(const Context& c, const RowBlock& b, int64_t first, const Workspace& w);

// Whether a call has queries and a cache that tiles take.
bool attends_in_tiles(const Kernels& kernels, const AttendCall& call, const KvLayer& kv);

// Load the queries of a task.
void load_queries(const Context& c, const RowBlock& b, const Heads& heads, const Workspace& w);
void load_tile_queries(const Context& c, const RowBlock& b, const Heads& heads, const Workspace& w);
// Do one step of the online softmax for the rows of `b` that see positions [first, first + 64).
void attend_block(const Context& c, const RowBlock& b, const Heads& heads, int64_t first,
                  const Workspace& w, const State& state);
void attend_tile_block(const Context& c, const RowBlock& b, const Heads& heads, int64_t first,
                       const Workspace& w, const State& state);

}  // namespace skiff::cpu
