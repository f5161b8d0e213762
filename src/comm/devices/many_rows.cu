// Rows of several ranks together, and the sums of what was made of them back to their owners, where
// there are many: through rings (rings.cuh). Half of the blocks send, and the others take what
// comes; so nobody who could send waits for what others send.
#include "comm/devices/headers.cuh"
#include "comm/devices/rings.cuh"

namespace skiff::devices {
namespace {

using cuda::Matrix;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kBeside = 2;  // blocks on a multiprocessor, with room for the kernels of a side lane
constexpr int kAtOnce = 8;  // accesses that a thread has under way

// The first half of the blocks sends: of two blocks that share a multiprocessor one does.
__device__ __forceinline__ int senders() { return static_cast<int>(gridDim.x) / 2; }
__device__ __forceinline__ bool is_sender() { return static_cast<int>(blockIdx.x) < senders(); }

// Calls f(chunk) for those below `chunks` that belong to this warp, until one returns false.
template <class F>
__device__ __forceinline__ bool for_chunks(int chunks, F f) {
  const int block = static_cast<int>(blockIdx.x) % senders();
  for (int i = block * kWarps + static_cast<int>(threadIdx.x) / 32; i < chunks;
       i += senders() * kWarps)
    if (!f(i)) return false;
  return true;
}

// Whether chunk i is of another rank, that of this lane. starts[r]: where the rows of rank r begin.
template <class T>
__device__ __forceinline__ bool is_of_peer(const Exchange& exchange, const Chunks<T>& chunks, int i,
                                           const int* starts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return is_for(exchange, lane) && i < chunks.of(starts[lane + 1] - starts[lane]);
}
__device__ __forceinline__ bool is_other(const Exchange& exchange) {
  return is_for(exchange, static_cast<int>(threadIdx.x) % 32);
}

template <class W>
__device__ __forceinline__ W received(const std::byte* from) {
  W words;
  receive(from, words);
  return words;
}

template <class T, int N>
__device__ void send_rows(const Exchange& exchange, const Rings& rings, const DispatchRows& args,
                          int rows) {
  const Chunks<T> chunks(args.cols);
  const Others others(exchange);
  const bool other = is_other(exchange);
  const int all = chunks.of(rows);
  const auto send_chunk = [&](int i) {
    if (!rings.await_free(i, other)) return false;
    const T* x = row_of<const T>(args.x, chunks.row(i)) + chunks.column(i);
    chunks.template move<N, kAtOnce>(
        i, [&](int c) { return words_at<T, N>(x + c); },
        [&](int c, const Words<T, N>& words) {
          const auto sent = sendable<T>(words);
#pragma unroll 1
          for (int k = 0; k < others.count(); ++k)
            send(rings.slot(others(k), exchange.rank, i) + c * sizeof(T), sent);
        });
    rings.tell_sent(i, other);
    return true;
  };
  for_chunks(all, send_chunk) &&
      for_chunks(all, [&](int i) { return rings.await_taken(i, all, other); });
}

template <class T, int N>
__device__ void take_rows(const Exchange& exchange, const Rings& rings, const DispatchRows& args,
                          const int* starts) {
  const Chunks<T> chunks(args.cols);
  int most = 0;
  for (int from = 0; from < exchange.size; ++from)
    most = max(most, starts[from + 1] - starts[from]);
  for_chunks(chunks.of(most), [&](int i) {
    const bool peer = is_of_peer(exchange, chunks, i, starts);
    if (!rings.await_sent(i, peer)) return false;
    const int r = chunks.row(i), begin = chunks.column(i);
    for (int from = 0; from < exchange.size; ++from) {
      if (r >= starts[from + 1] - starts[from]) continue;
      T* out = row_of<T>(args.out, starts[from] + r) + begin;
      const auto keep = [&](int c, const Words<T, N>& words) {
        *reinterpret_cast<Words<T, N>*>(out + c) = words;
      };
      if (from == exchange.rank) {
        const T* x = row_of<const T>(args.x, r) + begin;
        chunks.template move<N, kAtOnce>(
            i, [&](int c) { return words_at<T, N>(x + c); },
            [&](int c, const Words<T, N>& words) { keep(c, sendable<T>(words)); });
      } else {
        const std::byte* slot = rings.slot(exchange.rank, from, i);
        chunks.template move<N, kAtOnce>(
            i, [&](int c) { return received<Words<T, N>>(slot + c * sizeof(T)); }, keep);
      }
    }
    rings.tell_taken(i, peer);
    return true;
  });
}

template <class T, int N>
__global__ __launch_bounds__(kThreads, kBeside) void dispatch_many_rows_kernel(
    const __grid_constant__ Exchange exchange, const __grid_constant__ DispatchRows args) {
  __shared__ int starts[kMaxDevices + 1];
  const Turn turn(exchange, kRowsHeader);
  const int live = args.live ? min(*args.live, args.rows) : args.rows;
  const Rings rings(exchange, Chunks<T>(args.cols).of(args.most));
  send_header(turn, exchange, static_cast<uint32_t>(live));
  turn.turn_over();
  rings.begin();
  if (is_sender()) return send_rows<T, N>(exchange, rings, args, live);
  find_starts(turn, exchange, live, args.out_rows, starts);
  if (static_cast<int>(blockIdx.x) == senders() && static_cast<int>(threadIdx.x) <= exchange.size)
    args.starts[threadIdx.x] = starts[threadIdx.x];
  take_rows<T, N>(exchange, rings, args, starts);
}

template <class T, int N>
__device__ void send_parts(const Exchange& exchange, const Rings& rings, const CombineRows& args,
                           const int* starts) {
  const Chunks<T> chunks(args.cols);
  const Others others(exchange);
  const auto rows = [&](int owner) { return starts[owner + 1] - starts[owner]; };
  int most = 0;
  for (int k = 0; k < others.count(); ++k) most = max(most, rows(others(k)));
  const auto send_chunk = [&](int i) {
    const bool peer = is_of_peer(exchange, chunks, i, starts);
    if (!rings.await_free(i, peer)) return false;
    for (int k = 0; k < others.count(); ++k) {
      const int owner = others(k), r = chunks.row(i);
      if (r >= rows(owner)) continue;
      const T* from = row_of<const T>(args.parts, starts[owner] + r) + chunks.column(i);
      std::byte* slot = rings.slot(owner, exchange.rank, i);
      chunks.template move<N, kAtOnce>(
          i, [&](int c) { return words_at<T, N>(from + c); },
          [&](int c, const Words<T, N>& words) { send(slot + c * sizeof(T), sendable<T>(words)); });
    }
    rings.tell_sent(i, peer);
    return true;
  };
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for_chunks(chunks.of(most), send_chunk) && for_chunks(chunks.of(most), [&](int i) {
    const bool peer = is_of_peer(exchange, chunks, i, starts);
    return rings.await_taken(i, peer ? chunks.of(rows(lane)) : 0, peer);
  });
}

// N elements of a row as all ranks have them.
template <class T, int N, int kMost>
struct Parts {
  Words<T, N> own, of[kMost - 1];  // `of` the others, by rank

  // The sum, from rank 0 on.
  __device__ __forceinline__ void add(const Exchange& exchange, float (&sum)[N]) const {
    const Words<T, N> mine = sendable<T>(own);
#pragma unroll
    for (int from = 0; from < kMost; ++from) {
      if (from >= exchange.size) break;
      Words<T, N> words = of[min(from, kMost - 2)];
      if (from > exchange.rank) words = of[max(0, from - 1)];
      if (from == exchange.rank) words = mine;
      add_words<T, N>(words, sum);
    }
  }
};

template <class T, int N, int kMost>
__device__ void take_parts(const Exchange& exchange, const Rings& rings, const CombineRows& args,
                           const int* starts) {
  const Chunks<T> chunks(args.cols);
  const bool other = is_other(exchange);
  const int first = starts[exchange.rank], mine = starts[exchange.rank + 1] - first;
  for_chunks(chunks.of(args.rows), [&](int i) {
    const int r = chunks.row(i), begin = chunks.column(i);
    T* out = row_of<T>(args.out, r) + begin;
    if (r >= mine) {
      const float none[N] = {};
      chunks.template move<N, 1>(
          i, [](int) { return 0; }, [&](int c, int) { cuda::store<N>(out + c, none); });
      return true;
    }
    if (!rings.await_sent(i, other)) return false;
    const T* own = row_of<const T>(args.parts, first + r) + begin;
    chunks.template move<N, 2 * kAtOnce / kMost>(
        i,
        [&](int c) {
          Parts<T, N, kMost> parts;
          parts.own = words_at<T, N>(own + c);
#pragma unroll
          for (int k = 0; k < kMost - 1; ++k)
            if (k < exchange.size - 1)
              receive(rings.slot(exchange.rank, k < exchange.rank ? k : k + 1, i) + c * sizeof(T),
                      parts.of[k]);
          return parts;
        },
        [&](int c, const Parts<T, N, kMost>& parts) {
          float sum[N] = {};
          parts.add(exchange, sum);
          cuda::store<N>(out + c, sum);
        });
    rings.tell_taken(i, other);
    return true;
  });
}

template <class T, int N, int kMost>
__global__ __launch_bounds__(kThreads, kBeside) void combine_many_rows_kernel(
    const __grid_constant__ Exchange exchange, const __grid_constant__ CombineRows args) {
  __shared__ int starts[kMaxDevices + 1];
  cuda::wait_for_previous();
  if (!exchange.shares_device) cuda::let_next_start();
  const Rings rings(exchange, Chunks<T>(args.cols).of(args.most));
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread <= exchange.size) starts[thread] = args.starts[thread];
  __syncthreads();
  rings.begin();
  if (is_sender()) return send_parts<T, N>(exchange, rings, args, starts);
  take_parts<T, N, kMost>(exchange, rings, args, starts);
}

// Starts the kernel that kernel_of(T, N, kMost) gives, with a warp in each half for each chunk of a
// rank, or as many as can be resident.
template <class F, class Args>
void start_rings(const Exchange& exchange, const Args& args, const Matrix& a, const Matrix& b,
                 cudaStream_t stream, F kernel_of) {
  const auto start = [&]<class T, int N, int kMost>(T element, std::integral_constant<int, N> width,
                                                    std::integral_constant<int, kMost> many) {
    const auto kernel = kernel_of(element, width, many);
    const int64_t chunks =
        (args.cols * element_bytes(a) + kChunkBytes - 1) / kChunkBytes * args.most;
    cuda::Launch how{.block = dim3(kThreads), .stream = stream};
    const int64_t fit =
        std::min<int64_t>(most_resident(how, kernel, exchange),
                          kBeside * int64_t{cuda::attribute(cudaDevAttrMultiProcessorCount)});
    how.grid = dim3(static_cast<unsigned>(std::min((chunks + kWarps - 1) / kWarps, fit / 2)) * 2);
    cuda::launch(kernel, how, exchange, args);
  };
  with_access(a.type, is_wide(a, args.cols) && is_wide(b, args.cols), exchange.size, start);
}

}  // namespace

void start_dispatch_many_rows(const Exchange& exchange, const DispatchRows& args,
                              cudaStream_t stream) {
  start_rings(exchange, args, args.x, args.out, stream,
              []<class T, int N, int kMost>(T, std::integral_constant<int, N>,
                                            std::integral_constant<int, kMost>) {
                return dispatch_many_rows_kernel<T, N>;
              });
}

void start_combine_many_rows(const Exchange& exchange, const CombineRows& args,
                             cudaStream_t stream) {
  start_rings(exchange, args, args.parts, args.out, stream,
              []<class T, int N, int kMost>(T, std::integral_constant<int, N>,
                                            std::integral_constant<int, kMost>) {
                return combine_many_rows_kernel<T, N, kMost>;
              });
}

}  // namespace skiff::devices
