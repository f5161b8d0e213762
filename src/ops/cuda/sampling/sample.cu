#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/sampling/choose.cuh"

namespace skiff::cuda {
namespace {

constexpr int kPlans = 16;  // rows whose plans a cluster makes ahead

// The shared memory of a block: values that the blocks of a cluster exchange, and values that
// outlive a row. Arrays of two are double buffers, because a block may be one row ahead of another.
struct alignas(16) Memory {
  Masses mass;
  uint32_t best[2][kSlots];  // keys
  Sample sample[2];
  Plan plans[kPlans];
  Queues queues;
};

// Each cluster takes one row after the other, and writes its PassResult. A thread sees the same
// tokens in each loop over a row, so that loops need no barriers in between, and it copies its
// tokens of the next row while other threads still work on this one.
__global__ void __launch_bounds__(kPassThreads, 2)
    pass_kernel(int32_t* out_ids, LogitArgs logits, DrawArgs args, PassResult* results) {
  extern __shared__ __align__(16) unsigned char memory[];
  Memory& m = *reinterpret_cast<Memory*>(memory);
  float* const held = reinterpret_cast<float*>(memory + sizeof(Memory));
  const int step = static_cast<int>(gridDim.x) / kBlocks;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto row_of = [&](int r) { return logits.data + r * logits.stride; };
  cluster_arrive();
  wait_for_previous();
  let_next_start();
  int r = static_cast<int>(blockIdx.x) / kBlocks;
  HeldPiece piece(row_of(r), logits.vocab, held);
  clear(m.sample[0]);
  clear(m.sample[1]);
  cluster_wait();

  for (int turn = 0; r < logits.rows; ++turn, r += step) {
    const int now = turn % 2, next = r + step;
    if (turn % kPlans == 0) {
      __syncthreads();  // all threads are done with the last plans
      const int ahead = r + static_cast<int>(threadIdx.x) * step;
      if (threadIdx.x < kPlans && ahead < logits.rows)
        m.plans[threadIdx.x] = Plan(args, ahead, logits.vocab);
    }
    piece.wait_own();
    const uint32_t mine = __reduce_max_sync(kAllLanes, key(best_of_thread(piece)));
    if (lane < kBlocks) of_peer(m.best[now][my_slot()], lane) = mine;
    cluster_sync();
    const uint32_t bests[] = {m.best[now][lane], m.best[now][lane + 32]};
    const uint32_t best_key = __reduce_max_sync(kAllLanes, max(bests[0], bests[1]));
    const float best = logit_of(uint64_t{best_key} << 32);
    const Plan& plan = m.plans[turn % kPlans];
    const bool writes = threadIdx.x == 0 && block_rank() == 0;
    clear(m.sample[1 - now]);  // all blocks have read it
    if (plan.draw.greedy(best)) {
      const uint64_t have = uint64_t{__ballot_sync(kAllLanes, bests[1] == best_key)} << 32 |
                            __ballot_sync(kAllLanes, bests[0] == best_key);
      if ((__ffsll(static_cast<int64_t>(have)) - 1) / kPassWarps == block_rank())
        take_first(out_ids + r, piece, best);
      if (next < logits.rows) piece = HeldPiece(row_of(next), logits.vocab, held);
      if (writes) results[r].done = true;
      continue;
    }
    const Power power{best, plan.high, plan.low};
    take_sample(m.sample[now], piece, plan, best, logits.vocab);
    const bool drops = plan.needs_left();
    if (drops) {
      weigh<true>(m.mass, piece, power, least_kept(best, plan.span));
    } else {
      weigh<false>(m.mass, piece, power, kNever);
    }
    cluster_sync();
    const bool broken =
        __any_sync(kAllLanes, m.mass.all[lane] == kBroken || m.mass.all[lane + 32] == kBroken);
    const uint64_t total = sum_of_slots(m.mass.all);
    const uint64_t left = drops ? sum_of_slots(m.mass.left) : total;
    const Windows windows =
        find_windows(m.sample[now], plan, best, weight_of(total), weight_of(left), logits.vocab);
    look_through(m.queues, results[r], piece, power, windows, plan.draw.top_k > 0);
    if (next < logits.rows) piece = HeldPiece(row_of(next), logits.vocab, held);
    if (!writes) continue;
    results[r].total = total;
    results[r].left = left;
    results[r].plan = plan;
    results[r].windows = windows;
    results[r].best = best;
    results[r].done = false;
    results[r].broken = broken;
  }
  cluster_sync();  // no peer reads this block's memory any more
}

// There is one block for each row.
__global__ void __launch_bounds__(kPassThreads, 2)
    choose_kernel(int32_t* out_ids, PassResult* results) {
  extern __shared__ __align__(16) unsigned char memory[];
  ChoiceMemory& choice = *reinterpret_cast<ChoiceMemory*>(memory);
  wait_for_previous();
  let_next_start();
  PassResult& row = results[blockIdx.x];
  if (row.done || row.broken) return;
  Chooser chooser(choice, row);
  if (chooser.choose(out_ids + blockIdx.x) && threadIdx.x == 0) row.done = true;
}

size_t shared_bytes(int vocab) { return sizeof(Memory) + piece_bytes(vocab); }

constexpr int kPassRows = 256;  // the most rows of a launch
// Up to kFewRows rows the histogram is faster: its clusters have twice the threads, and it is one
// kernel.
constexpr int kFewRows = 16;

}  // namespace

int sampled_at_once(int vocab, size_t shared) {
  if (std::max(shared_bytes(vocab), sizeof(ChoiceMemory)) > shared || piece_size(vocab) > kMaxHeld)
    return 0;
  allow_shared(pass_kernel, max_shared());
  allow_shared(choose_kernel, sizeof(ChoiceMemory));
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kBlocks, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(kPassThreads);
  config.dynamicSmemBytes = shared_bytes(vocab);
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, pass_kernel, &config),
        "asking how many clusters fit");
  return std::max(clusters, 1);
}

size_t sample_bytes() { return kPassRows * sizeof(PassResult); }

void start_sample(int32_t* out_ids, const LogitArgs& logits, const DrawArgs& draw,
                  const SampleMeans& means, cudaStream_t stream) {
  if (means.at_once == 0 || logits.rows <= kFewRows)
    return start_histograms(out_ids, logits, draw, means, stream);
  auto* const results = static_cast<PassResult*>(means.memory);
  for (int r = 0; r < logits.rows; r += kPassRows) {
    LogitArgs some = logits;
    some.data += r * logits.stride;
    some.rows = std::min(logits.rows - r, kPassRows);
    const DrawArgs draws{draw.temperature + r, draw.top_p + r, draw.min_p + r,
                         draw.top_k + r,       draw.seed + r,  draw.draw + r};
    launch(pass_kernel,
           {.grid = dim3(static_cast<unsigned>(std::min(some.rows, means.at_once)) * kBlocks),
            .block = dim3(kPassThreads),
            .shared = shared_bytes(logits.vocab),
            .stream = stream,
            .cluster = kBlocks},
           out_ids + r, some, draws, results);
    launch(choose_kernel,
           {.grid = dim3(static_cast<unsigned>(some.rows)),
            .block = dim3(kPassThreads),
            .shared = sizeof(ChoiceMemory),
            .stream = stream},
           out_ids + r, results);
    start_missed(out_ids + r, some, draws, results, means, stream);
  }
}

}  // namespace skiff::cuda
