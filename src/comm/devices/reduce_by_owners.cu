// Sums of many rows. Each row has an owner, the rank row % size, which alone adds it up and
// computes the norm. So (size - 1) / size of a row crosses a rank's link twice, on its way to the
// owner and as the norm back from there, where sending all rows to all ranks takes size - 1 of it.
//
// A group is `size` neighbouring rows, one of each owner, and belongs to a cluster of blocks that
// have a slice of its columns each; where there are no clusters, to a block. These send their next
// group before they add up the present one, and take the norms of the one before after that, so
// that the link is busy while others are waited for. Every rank sends something to every other,
// because there are at least `size` rows: so this ends only when all ranks have begun it, as
// exchange.h asks of a collective.
#include "comm/devices/reduce.cuh"

namespace skiff::devices {
namespace {

__host__ __device__ constexpr int groups_of(int rows, int size) { return (rows + size - 1) / size; }

// The sum of a row over the threads of kBlocks blocks, and the slice of a block.
template <int kBlocks>
struct Row : ClusterSum {
  static_assert(kBlocks == kSlices);
  __device__ static Slice slice(int cols) { return Slice::of_cluster(cols); }
};
template <>
struct Row<1> {
  __device__ static Slice slice(int cols) { return Slice::of_block(cols); }
  __device__ void begin() const {}
  __device__ float operator()(float x) const {
    __syncthreads();
    return sum_slices(x);
  }
};

__device__ __forceinline__ void wait_cycles(int cycles) {
  const long long since = clock64();
  while (clock64() - since < cycles) {
  }
}

template <class T, int N, int kMost>
class Groups {
 public:
  __device__ Groups(const Exchange& exchange, const ReduceAddNorm& args, const Slice& slice)
      : exchange_(exchange), args_(args), others_(exchange), slice_(slice) {}

  __device__ int count() const { return groups_of(args_.rows, exchange_.size); }

  // What others own of some columns of a group.
  struct Parts {
    Words<T, N> of[kMost - 1];
  };
  // Begins to load the rows of others, and sends them to their owners.
  __device__ __forceinline__ Parts load(int group) const {
    if (group >= count()) return {};
    return slice_.load_first<N>([&](int c) { return parts(group, c); });
  }
  __device__ __forceinline__ void send(const Turn& turn, int group, const Parts& first) const {
    if (group >= count()) return;
    slice_.for_loaded<N>(
        first, [&](int c) { return parts(group, c); },
        [&](int c, const Parts& parts) {
          for_others(group, [&](int i, int owner) {
            turn.send_to(owner, place(group, c), sendable<T>(parts.of[i]));
          });
        });
  }

  // Adds up the own row, and sends its norm to all.
  template <class Row>
  __device__ void add_up(const Turn& turn, int group, float* kept, Row& sum_of_row) const {
    if (exchange_.rank >= owners_of(group)) return;
    const int r = row(group, exchange_.rank);
    const SumOfSlots<T, N, kMost> sum{turn, exchange_, args_, r, place(group, 0)};
    const float squares = sum_of_row(add_slice<N>(args_, r, slice_, kept, sum));
    norm_slice<T, N>(args_, slice_, squares, kept, [&](int c, const Words<T, N>& words) {
      turn.send_all(norms() + place(group, c), words);
      put<T, N>(args_.out, r, c, words);
    });
  }

  // Takes the norms of the rows of others.
  __device__ void take(const Turn& turn, int group) const {
    if (group < 0) return;
    const int owners = owners_of(group);
    slice_.for_columns<N>([&](int c) {
      Words<T, N> words[kMost];
      turn.receive_all<T>(norms() + place(group, c), owners, words);
#pragma unroll
      for (int owner = 0; owner < kMost; ++owner)
        if (owner < owners && owner != exchange_.rank)
          put<T, N>(args_.out, row(group, owner), c, words[owner]);
    });
  }

 private:
  __device__ __forceinline__ Parts parts(int group, int c) const {
    Parts parts = {};
    for_others(group, [&](int i, int owner) {
      parts.of[i] = words_at<T, N>(row_of<const T>(args_.delta, row(group, owner)) + c);
    });
    return parts;
  }
  // Calls f(i, rank) for those of the others that own a row of a group.
  template <class F>
  __device__ __forceinline__ void for_others(int group, F f) const {
    const int owners = owners_of(group);
#pragma unroll
    for (int i = 0; i < kMost - 1; ++i) {
      const int rank = others_(i);
      if (i < others_.count() && rank < owners) f(i, rank);
    }
  }

  // Norms lie in a slot behind the parts of sums, which take as many bytes.
  __device__ uint64_t norms() const { return place(count(), 0); }
  __device__ int row(int group, int owner) const { return group * exchange_.size + owner; }
  // The last group may have fewer rows than there are ranks.
  __device__ int owners_of(int group) const {
    return min(exchange_.size, args_.rows - group * exchange_.size);
  }
  __device__ uint64_t place(int group, int c) const {
    return (uint64_t{static_cast<unsigned>(group)} * args_.cols + c) * sizeof(T);
  }

  const Exchange& exchange_;
  const ReduceAddNorm& args_;
  const Others others_;
  const Slice slice_;
};

// The threads of a block, and how many blocks a multiprocessor has registers for.
template <int kBlocks>
constexpr int kThreads = kSlices* kMaxSliceThreads / kBlocks;
template <int kBlocks, int kMost>
constexpr int kBeside = kBlocks == 1 ? 1
                        : kMost <= 4 ? 3
                                     : 2;

// The first groups begin `cycles` one after the other: as fast as a link takes what they send,
// which would else all arrive at its end. So norms of the first are sent while others still send
// rows.
template <class T, int N, int kMost, int kBlocks>
__global__ __launch_bounds__(kThreads<kBlocks>, kBeside<kBlocks, kMost>) void by_owners_kernel(
    const __grid_constant__ Exchange exchange, const __grid_constant__ ReduceAddNorm args,
    int cycles) {
  extern __shared__ __align__(16) float shared[];
  Row<kBlocks> sum_of_row;
  const Slice slice = Row<kBlocks>::slice(args.cols);
  // A cluster's block keeps its slice of a row.
  float* kept = kBlocks == 1 ? shared : shared - slice.index * slice_width<N>(args.cols);
  const Groups<T, N, kMost> work(exchange, args, slice);
  const int first = static_cast<int>(blockIdx.x) / kBlocks;
  const int step = static_cast<int>(gridDim.x) / kBlocks;
  typename Groups<T, N, kMost>::Parts parts;
  const Turn turn(exchange, uint64_t{2} * work.count() * args.cols * sizeof(T),
                  [&] { parts = work.load(first); });
  wait_cycles(first * cycles);
  work.send(turn, first, parts);
  turn.turn_over();
  sum_of_row.begin();
  int before = -1;
  for (int group = first; group < work.count(); group += step) {
    work.send(turn, group + step, work.load(group + step));
    work.add_up(turn, group, kept, sum_of_row);
    work.take(turn, before);
    before = group;
  }
  work.take(turn, before);
}

// Returns in how many cycles of a multiprocessor the NVLink of Hopper, or of what came after it,
// takes so many bytes. Another link takes them later, and then this delays nothing.
int cycles_to_send(double bytes) {
  // The driver asks the device for its clock anew each time, which takes as long as a small step.
  // The devices of a group are of one kind.
  static const double cycles_in_ms = cuda::attribute(cudaDevAttrClockRate);
  const bool hopper = cuda::attribute(cudaDevAttrComputeCapabilityMajor) == 9;
  const double bytes_in_ms = hopper ? 450e6 : 900e6;
  return static_cast<int>(bytes / bytes_in_ms * cycles_in_ms);
}

// A launch in which kBlocks blocks have a row; its grid is not set yet.
template <int N, int kBlocks, class... P>
cuda::Launch launch_for(void (*kernel)(P...), int cols, cudaStream_t stream) {
  const int columns = kBlocks > 1 ? slice_width<N>(cols) : cols;
  const size_t shared = static_cast<size_t>(columns) * sizeof(float);
  if (shared > cuda::kSharedUnasked) cuda::allow_shared(kernel, shared);
  cuda::Launch how = launch_of<N>(cols, kSlices / kBlocks, shared, stream);
  how.cluster = kBlocks;
  return how;
}

// Starts clusters, where a device has them and each has few groups: the waits of one group come
// after those of another, and with more of them the threads of whole blocks are faster.
template <class T, int N, int kMost>
bool start_clusters(const Exchange& exchange, const ReduceAddNorm& args, cudaStream_t stream) {
  constexpr int64_t kMostGroups = 2;
  if (!cuda::kernels_overlap() || exchange.shares_device) return false;
  const auto kernel = by_owners_kernel<T, N, kMost, kSlices>;
  cuda::Launch how = launch_for<N, kSlices>(kernel, args.cols, stream);
  const int64_t groups = groups_of(args.rows, exchange.size);
  const int64_t fit = most_resident(how, kernel, exchange);
  if (fit == 0 || groups > kMostGroups * fit) return false;
  const int64_t each = (groups + fit - 1) / fit;
  how.grid = dim3(static_cast<unsigned>((groups + each - 1) / each * kSlices));
  const double bytes = double{sizeof(T)} * args.cols * (exchange.size - 1);
  cuda::launch(kernel, how, exchange, args, each == 1 ? cycles_to_send(bytes) : 0);
  return true;
}

template <class T, int N, int kMost>
void start_blocks(const Exchange& exchange, const ReduceAddNorm& args, cudaStream_t stream) {
  const auto kernel = by_owners_kernel<T, N, kMost, 1>;
  cuda::Launch how = launch_for<N, 1>(kernel, args.cols, stream);
  set_resident_blocks(how, kernel, groups_of(args.rows, exchange.size), exchange);
  cuda::launch(kernel, how, exchange, args, 0);
}

}  // namespace

int most_rows_by_owners(int size, int64_t row_bytes) {
  return static_cast<int>(size * (static_cast<int64_t>(kSlotBytes) / (2 * row_bytes)));
}

void start_add_norm_by_owners(const Exchange& exchange, const ReduceAddNorm& args,
                              cudaStream_t stream) {
  SKIFF_CHECK(args.rows >= exchange.size, "{} rows for {} owners", args.rows, exchange.size);
  with_access(args.delta.type, is_wide(args), exchange.size,
              [&]<class T, int N, int kMost>(T, std::integral_constant<int, N>,
                                             std::integral_constant<int, kMost>) {
                if (!start_clusters<T, N, kMost>(exchange, args, stream))
                  start_blocks<T, N, kMost>(exchange, args, stream);
              });
}

}  // namespace skiff::devices
