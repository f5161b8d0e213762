// Sums of many rows. Each row has an owner, the rank row % size, which alone adds it up and
// computes the norm. So (size - 1) / size of a row crosses a rank's link twice, on its way to the
// owner and as the norm back from there, where sending all rows to all ranks takes size - 1 of it.
//
// A group is `size` neighbouring rows, one of each owner, and belongs to one block. A block sends
// its next group before it adds up the present one, and takes the norms of the one before after
// that, so that the link is busy while others are waited for. Every rank sends something to every
// other, because there are at least `size` rows: so this ends only when all ranks have begun it, as
// exchange.h asks of a collective.
#include "comm/devices/reduce.cuh"

namespace skiff::devices {
namespace {

__host__ __device__ constexpr int groups_of(int rows, int size) { return (rows + size - 1) / size; }

template <class T, int N, int kMost>
class Groups {
 public:
  __device__ Groups(const Turn& turn, const Exchange& exchange, const ReduceAddNorm& args)
      : turn_(turn), exchange_(exchange), args_(args), slice_(Slice::of_block(args.cols)) {}

  // Sends the rows of others to their owners.
  __device__ void send(int group) const {
    if (group >= groups_of(args_.rows, exchange_.size)) return;
    const int owners = owners_of(group);
    slice_.for_columns<N>([&](int c) {
#pragma unroll
      for (int owner = 0; owner < kMost; ++owner)
        if (owner < owners && owner != exchange_.rank)
          turn_.send_to(
              owner, place(group, c),
              sendable<T>(words_at<T, N>(row_of<const T>(args_.delta, row(group, owner)) + c)));
    });
  }

  // Adds up the own row, and sends its norm to all.
  __device__ void add_up(int group, float* kept) const {
    if (exchange_.rank >= owners_of(group)) return;
    const int r = row(group, exchange_.rank);
    const SumOfSlots<T, N, kMost> sum{turn_, exchange_, args_, r, place(group, 0)};
    add_and_norm<T, N>(args_, r, slice_, kept, sum, [&](int c, const Words<T, N>& words) {
      turn_.send_all(norms() + place(group, c), words);
      put<T, N>(args_.out, r, c, words);
    });
  }

  // Takes the norms of the rows of others.
  __device__ void take(int group) const {
    if (group < 0) return;
    const int owners = owners_of(group);
    slice_.for_columns<N>([&](int c) {
      Words<T, N> words[kMost];
      turn_.receive_all<T>(norms() + place(group, c), owners, words);
#pragma unroll
      for (int owner = 0; owner < kMost; ++owner)
        if (owner < owners && owner != exchange_.rank)
          put<T, N>(args_.out, row(group, owner), c, words[owner]);
    });
  }

 private:
  // Norms lie in a slot behind the parts of sums, which take as many bytes.
  __device__ uint64_t norms() const { return place(groups_of(args_.rows, exchange_.size), 0); }
  __device__ int row(int group, int owner) const { return group * exchange_.size + owner; }
  // The last group may have fewer rows than there are ranks.
  __device__ int owners_of(int group) const {
    return min(exchange_.size, args_.rows - group * exchange_.size);
  }
  __device__ uint64_t place(int group, int c) const {
    return (uint64_t{static_cast<unsigned>(group)} * args_.cols + c) * sizeof(T);
  }

  const Turn& turn_;
  const Exchange& exchange_;
  const ReduceAddNorm& args_;
  const Slice slice_;
};

template <class T, int N, int kMost>
__global__ __launch_bounds__(kSlices* kMaxSliceThreads) void add_norm_by_owners_kernel(
    const __grid_constant__ Exchange exchange, const __grid_constant__ ReduceAddNorm args) {
  extern __shared__ float kept[];
  const int groups = groups_of(args.rows, exchange.size);
  const Turn turn(exchange, uint64_t{2} * groups * args.cols * sizeof(T));
  const Groups<T, N, kMost> work(turn, exchange, args);
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  work.send(first);
  turn.turn_over();
  int before = -1;
  for (int group = first; group < groups; group += step) {
    work.send(group + step);
    work.add_up(group, kept);
    work.take(before);
    before = group;
  }
  work.take(before);
}

}  // namespace

int most_rows_by_owners(int size, int64_t row_bytes) {
  return static_cast<int>(size * (static_cast<int64_t>(kSlotBytes) / (2 * row_bytes)));
}

void start_add_norm_by_owners(const Exchange& exchange, const ReduceAddNorm& args,
                              cudaStream_t stream) {
  SKIFF_CHECK(args.rows >= exchange.size, "{} rows for {} owners", args.rows, exchange.size);
  const auto start = [&]<class T, int N, int kMost>(T, std::integral_constant<int, N>,
                                                    std::integral_constant<int, kMost>) {
    const size_t shared = static_cast<size_t>(args.cols) * sizeof(float);
    const auto kernel = add_norm_by_owners_kernel<T, N, kMost>;
    cuda::Launch how = launch_of<N>(args.cols, kSlices, shared, stream);
    if (shared > cuda::kSharedUnasked) cuda::allow_shared(kernel, shared);
    set_resident_blocks(how, kernel, groups_of(args.rows, exchange.size), exchange);
    cuda::launch(kernel, how, exchange, args);
  };
  with_access(args.delta.type, is_wide(args), exchange.size, start);
}

}  // namespace skiff::devices
