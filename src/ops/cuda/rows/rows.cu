#include <algorithm>

#include "ops/cuda/activation.cuh"
#include "ops/cuda/align.h"
#include "ops/cuda/block.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/rows/held_norm.cuh"
#include "ops/cuda/rows/kernels.h"
#include "ops/cuda/vector.cuh"

namespace skiff::cuda {
namespace {

constexpr int kVector = kNormVector;  // elements per access where operands are aligned

// Returns whether rows can be read `vector` elements at a time; true for a matrix that is not
// there.
bool aligned(const Matrix& m, int vector = kVector) {
  const int64_t width = m.type == Float::kF32 ? 4 : 2;
  return is_aligned(m.data, m.stride * width, vector * width);
}

// f(T{}) for the type of a matrix that may be f32 or bf16.
template <class F>
void with_type(Float type, F f) {
  if (type == Float::kF32) return f(float{});
  if (type == Float::kBF16) return f(__nv_bfloat16{});
  f(__half{});
}

// The most blocks along y that CUDA can launch.
constexpr int kMaxGridY = 65535;

Launch rows_by_columns(int rows, int cols, int vector, cudaStream_t stream) {
  const int items = cols / vector, threads = items >= 256 ? 256 : (items + 31) / 32 * 32;
  const int blocks = std::min((items + threads - 1) / threads, kMaxGridY);
  return {.grid = dim3(static_cast<unsigned>(rows), static_cast<unsigned>(blocks)),
          .block = dim3(static_cast<unsigned>(threads)),
          .stream = stream};
}

// Calls f(column) for every N-th column of this thread's row, under rows_by_columns(). Rows may be
// wider than a grid: when a stack of experts is converted, a row is a whole expert.
template <int N, class F>
__device__ __forceinline__ void for_columns(int cols, F f) {
  const int64_t step = int64_t{gridDim.y} * blockDim.x * N;
  for (int64_t c = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N; c < cols; c += step) f(c);
}

template <class O, class X, int N>
__global__ void copy_rows_kernel(Matrix out, Matrix x, const int32_t* from, int cols) {
  let_next_start();
  wait_for_previous();
  const int64_t r = blockIdx.x, from_row = from ? from[r] : r;
  for_columns<N>(cols, [&](int64_t c) {
    float v[N];
    load<N>(v, row_of<const X>(x, from_row) + c);
    store<N>(row_of<O>(out, r) + c, v);
  });
}

template <class O, class X, int N>
__global__ void add_kernel(Matrix out, Matrix x, int cols) {
  let_next_start();
  wait_for_previous();
  const int64_t r = blockIdx.x;
  for_columns<N>(cols, [&](int64_t c) {
    float sum[N], more[N];
    load<N>(sum, row_of<const O>(out, r) + c);
    load<N>(more, row_of<const X>(x, r) + c);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += more[i];
    store<N>(row_of<O>(out, r) + c, sum);
  });
}

// Heads of classes alone use it, on a few rows.
template <class T>
__global__ void relu_kernel(Matrix x, int cols) {
  let_next_start();
  wait_for_previous();
  const int64_t r = blockIdx.x;
  for_columns<1>(cols, [&](int64_t c) {
    float v[1];
    load<1>(v, row_of<const T>(x, r) + c);
    if (v[0] < 0) v[0] = 0;
    store<1>(row_of<T>(x, r) + c, v);
  });
}

// The fast exponential is accurate enough for results in bf16.
template <class T>
__device__ __forceinline__ float silu_for(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return silu_fast(x);
  return silu(x);
}

template <class T, bool kGelu, int N>
__global__ void gated_act_kernel(Matrix out, Matrix gate_up, int width) {
  let_next_start();
  wait_for_previous();
  const int64_t r = blockIdx.x;
  for_columns<N>(width, [&](int64_t c) {
    float gate[N], up[N];
    load<N>(gate, row_of<const T>(gate_up, r) + c);
    load<N>(up, row_of<const T>(gate_up, r) + width + c);
#pragma unroll
    for (int i = 0; i < N; ++i) up[i] *= kGelu ? gelu(gate[i]) : silu_for<T>(gate[i]);
    store<N>(row_of<T>(out, r) + c, up);
  });
}

template <class T, int kPieces>
__global__ void held_norm_kernel(HeldNorm a, Matrix delta) {
  const auto more = [&](float(&to)[kVector], int c) {
    load<kVector>(to, row_of<T>(delta, blockIdx.x) + c);
  };
  held_norm<T, kPieces>(a, delta.data != nullptr, more);
}

// Adds delta to the residual and norms the sum, for rows of any length: a block keeps its row in
// shared memory.
template <class T, int N>
__global__ void add_norm_kernel(Matrix out, Matrix residual, Matrix delta, const float* weight,
                                float eps, int cols) {
  extern __shared__ float row[];
  let_next_start();
  wait_for_previous();
  const int64_t r = blockIdx.x;
  float* x = row_of<float>(residual, r);
  const T* more = delta.data ? row_of<const T>(delta, r) : nullptr;
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  float squares = 0;
  for (int c = first; c < cols; c += step) {
    float v[N];
    load<N>(v, x + c);
    if (more) {
      float d[N];
      load<N>(d, more + c);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] += d[i];
      store<N>(x + c, v);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      row[c + i] = v[i];
      squares += v[i] * v[i];
    }
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(cols) + eps);
  for (int c = first; c < cols; c += step) {
    float v[N], w[N];
    load<N>(w, weight + c);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = row[c + i] * scale * w[i];
    store<N>(row_of<T>(out, r) + c, v);
  }
}

__global__ void load_tokens_kernel(int32_t* tokens, const int32_t* last, int n) {
  let_next_start();
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n && tokens[i] < 0) tokens[i] = last[-1 - tokens[i]];
}

__global__ void store_tokens_kernel(int32_t* last, const int32_t* slots, const int32_t* tokens,
                                    int n) {
  let_next_start();
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n && slots[i] >= 0) last[slots[i]] = tokens[i];
}

Launch flat(int n, cudaStream_t stream) {
  return {.grid = dim3(static_cast<unsigned>(n + 255) / 256), .block = dim3(256), .stream = stream};
}

}  // namespace

bool has_kernels() {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, store_tokens_kernel) == cudaSuccess) return true;
  cudaGetLastError();  // else the next call would report it again
  return false;
}

void start_copy_rows(Matrix out, Matrix x, const int32_t* from, int rows, int cols,
                     cudaStream_t stream) {
  const bool wide = cols % kVector == 0 && aligned(out) && aligned(x);
  with_type(out.type, [&]<class O>(O) {
    if constexpr (!std::is_same_v<O, __half>) {
      with_type(x.type, [&]<class X>(X) {
        const Launch how = rows_by_columns(rows, cols, wide ? kVector : 1, stream);
        launch(wide ? copy_rows_kernel<O, X, kVector> : copy_rows_kernel<O, X, 1>, how, out, x,
               from, cols);
      });
    }
  });
}

void start_add(Matrix out, Matrix x, int rows, int cols, cudaStream_t stream) {
  const bool wide = cols % kVector == 0 && aligned(out) && aligned(x);
  const Launch how = rows_by_columns(rows, cols, wide ? kVector : 1, stream);
  with_type(out.type, [&]<class O>(O) {
    if constexpr (!std::is_same_v<O, __half>)
      launch(wide ? add_kernel<O, O, kVector> : add_kernel<O, O, 1>, how, out, x, cols);
  });
}

void start_relu(Matrix x, int rows, int cols, cudaStream_t stream) {
  const Launch how = rows_by_columns(rows, cols, 1, stream);
  with_type(x.type, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, __half>) launch(relu_kernel<T>, how, x, cols);
  });
}

void start_gated_act(Matrix out, Matrix gate_up, bool gelu, int rows, int width,
                     cudaStream_t stream) {
  constexpr int kWide = 8;  // elements per access in bf16
  const bool wide = width % kVector == 0 && aligned(out) && aligned(gate_up);
  const bool wider = out.type == Float::kBF16 && width % kWide == 0 && aligned(out, kWide) &&
                     aligned(gate_up, kWide);
  const Launch how = rows_by_columns(rows, width, wider ? kWide : (wide ? kVector : 1), stream);
  with_type(out.type, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, __half>) {
      const auto choose = [&]<bool kGelu>(std::bool_constant<kGelu>) {
        if constexpr (std::is_same_v<T, __nv_bfloat16>)
          if (wider) return gated_act_kernel<T, kGelu, kWide>;
        return wide ? gated_act_kernel<T, kGelu, kVector> : gated_act_kernel<T, kGelu, 1>;
      };
      launch(gelu ? choose(std::true_type()) : choose(std::false_type()), how, out, gate_up, width);
    }
  });
}

void start_add_norm(Matrix out, Matrix residual, Matrix delta, const float* weight, float eps,
                    int rows, int cols, cudaStream_t stream) {
  const bool wide = cols % kVector == 0 && aligned(out) && aligned(residual) && aligned(delta) &&
                    is_aligned(weight);
  const HeldShape held = wide ? held_shape(cols) : HeldShape{};
  const int threads = wide ? cols / kVector : cols;
  Launch how{
      .grid = dim3(static_cast<unsigned>(rows)),
      .block = dim3(threads >= 1024 ? 1024u : static_cast<unsigned>((threads + 31) / 32 * 32)),
      .stream = stream};
  const HeldNorm norm = {out, residual, weight, eps, cols};
  with_type(out.type, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, __half>) {
      if (held.pieces == 1) return launch(held_norm_kernel<T, 1>, how, norm, delta);
      if (held.pieces == 2) return launch(held_norm_kernel<T, 2>, how, norm, delta);
      how.shared = static_cast<size_t>(cols) * sizeof(float);
      const auto kernel = wide ? add_norm_kernel<T, kVector> : add_norm_kernel<T, 1>;
      if (how.shared > kSharedUnasked) allow_shared(kernel, how.shared);
      launch(kernel, how, out, residual, delta, weight, eps, cols);
    }
  });
}

void start_load_tokens(int32_t* tokens, const int32_t* last, int n, cudaStream_t stream) {
  launch(load_tokens_kernel, flat(n, stream), tokens, last, n);
}

void start_store_tokens(int32_t* last, const int32_t* slots, const int32_t* tokens, int n,
                        cudaStream_t stream) {
  launch(store_tokens_kernel, flat(n, stream), last, slots, tokens, n);
}

}  // namespace skiff::cuda
