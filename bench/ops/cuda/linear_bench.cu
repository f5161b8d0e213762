// bench/ops/cuda/linear_bench.cu -- dense products on the device: right first, then how fast.
#include <cstring>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/dense.h"
#include "ops/cuda/linear/tiled.h"
#include "product_check.cuh"

namespace skiff::cuda::bench {
namespace {

constexpr int kTrials = 40;  // the library's algorithms that are tried
constexpr double kReadLimit = 4.5e12, kBf16Limit = 790e12;

struct Context {
  cudaStream_t stream;
  DenseProducts& dense;
  void* cublas_scratch;
  int checks = 0, failures = 0;
};

void one_case(Context& c, int rows, int in, int out, DType act, DType out_type, bool bias,
              bool gated, int64_t gap, const char* what) {
  const Tensor x = random(act, {rows, in}, 1, 1, gap),
               o = make(out_type, {rows, gated ? out / 2 : out}, gap);
  Linear w;
  w.weight = random(act, {out, in}, 2);
  if (bias) w.bias = random(DType::kF32, {out}, 3, 4);
  if (!std::strcmp(what, "chosen")) {
    if (gated) {
      if (!c.dense.gated_product(o, x, w, Act::kSilu, c.stream)) {
        std::printf("gated refused\n");
        return;
      }
    } else {
      c.dense.product(o, x, w, c.stream);
    }
  } else if (gated) {
    c.dense.streamed().gated_product(o, x, w, Act::kSilu, c.stream);
  } else {
    c.dense.streamed().product(o, x, w, c.stream);
  }
  check(cudaStreamSynchronize(c.stream), "a product");
  const double worst = worst_of(o, x, w, gated);
  ++c.checks;
  if (!(worst <= 1)) ++c.failures;
  if (!(worst <= 1) || what[0] == 's')
    std::printf("%s rows %d in %d out %d %s%s%s gap %d: worst error %.3g of the bound\n", what,
                rows, in, out, act == DType::kF32 ? "f32" : "bf16", bias ? " bias" : "",
                gated ? " gated" : "", static_cast<int>(gap), worst);
  cudaFree(x.data), cudaFree(o.data), cudaFree(w.weight.data), cudaFree(w.bias.data);
}

void correctness(Context& c) {
  const int shapes[][3] = {{0, 32, 32},       {1, 1, 1},        {1, 64, 64},     {1, 257, 129},
                           {2, 33, 5},        {17, 100, 31},    {17, 513, 65},   {5, 31, 513},
                           {40, 96, 100},     {1, 1000, 48},    {16, 128, 256},  {33, 65, 17},
                           {3, 512, 40000},   {200, 136, 88},   {1, 4096, 6144}, {8, 2560, 3584},
                           {130, 4096, 1000}, {1, 4096, 128256}};
  for (const auto& s : shapes)
    for (DType act : {DType::kF32, DType::kBF16})
      for (DType out : {DType::kF32, DType::kBF16}) {
        if (act == DType::kF32 && out == DType::kBF16) continue;
        for (int bias = 0; bias < 2; ++bias)
          for (int gap : {0, 3}) {
            if (act == DType::kF32 && s[2] > 10000) continue;
            one_case(c, s[0], s[1], s[2], act, out, bias, false, gap, "chosen");
          }
      }
  for (int rows : {1, 7, 8, 9, 16, 31, 48, 64, 100, 128, 300, 1000})
    for (int k : {136, 4096}) {
      one_case(c, rows, k, 4096, DType::kBF16, DType::kBF16, true, false, 0, "streamed");
      one_case(c, rows, k, 1000, DType::kBF16, DType::kF32, false, false, 8, "streamed");
      one_case(c, rows, k, 2 * 1544, DType::kBF16, DType::kBF16, false, true, 0, "streamed");
    }
}

// Rows of a product alone and in company, bit for bit.
void invariance(Context& c) {
  const Tensor x = random(DType::kBF16, {128, 4096}, 5);
  const Linear w = {.weight = random(DType::kBF16, {6144, 4096}, 6)};
  const Tensor all = make(DType::kF32, {128, 6144}), part = make(DType::kF32, {128, 6144});
  c.dense.streamed().product(all, x, w, c.stream);
  for (int n : {1, 5, 16, 30, 64}) {
    c.dense.streamed().product(part.row_range(0, n), x.row_range(0, n), w, c.stream);
    check(cudaStreamSynchronize(c.stream), "a product");
    const bool same = host<float>(all.data, n * 6144) == host<float>(part.data, n * 6144);
    std::printf("rows 0..%d of 128 alike: %s\n", n, same ? "yes" : "NO");
    ++c.checks;
    c.failures += !same;
  }
  cudaFree(x.data), cudaFree(w.weight.data), cudaFree(all.data), cudaFree(part.data);
}

void sync(Context& c) { check(cudaStreamSynchronize(c.stream), "products"); }

struct Shape {
  int out, in;
};

Linear matrix(void* data, const Shape& s) {
  return {.weight = {
              .data = data, .dim = {s.out, s.in, 1, 1}, .row_stride = s.in, .dtype = DType::kBF16}};
}

// Times single launches of our kernel and of cuBLASLt's best algorithm.
void single(Context& c, const std::vector<Shape>& shapes, const std::vector<int>& rows_list,
            char* weights, size_t weight_bytes) {
  CublasLt library;
  for (const Shape& s : shapes)
    for (int rows : rows_list) {
      const size_t size = size_t(s.out) * s.in * 2;
      const int copies =
          static_cast<int>(std::min<size_t>(weight_bytes / size, (400u << 20) / size + 1));
      Tensor w = make(DType::kBF16, {0, 0});
      w.dim = {s.out, s.in, 1, 1}, w.row_stride = s.in;
      const Tensor x = random(DType::kBF16, {rows, s.in}, 7),
                   out = make(DType::kBF16, {rows, s.out});
      const auto pick = [&](int i) {
        Linear one = {.weight = w};
        one.weight.data = weights + size_t(i % copies) * size;
        return one;
      };
      for (int i = 0; i < kTrials; ++i) library.tune(out, x, pick(i), c.cublas_scratch, c.stream);
      library.settle();
      const double lib = median_us(
          [&](int i) { library.product(out, x, pick(i), c.cublas_scratch, c.stream); }, c.stream);
      const double lib_g = graph_us(
                               [&] {
                                 for (int i = 0; i < copies; ++i)
                                   library.product(out, x, pick(i), c.cublas_scratch, c.stream);
                               },
                               c.stream) /
                           copies;
      const double our = median_us(
          [&](int i) { c.dense.streamed().product(out, x, pick(i), c.stream); }, c.stream);
      const double our_g = graph_us(
                               [&] {
                                 for (int i = 0; i < copies; ++i)
                                   c.dense.streamed().product(out, x, pick(i), c.stream);
                               },
                               c.stream) /
                           copies;
      const double by = size + 2.0 * rows * (s.out + s.in), fl = 2.0 * rows * s.out * s.in;
      const double limit = std::max(by / kReadLimit, fl / kBf16Limit) * 1e6;
      std::printf(
          "%6dx%-6d rows %5d  cublas %7.1f us (graph %7.1f)  ours %7.1f us (graph %7.1f)  %5.0f "
          "GB/s %6.1f TF  %3.0f %% of limit (cublas %3.0f %%)\n",
          s.out, s.in, rows, lib, lib_g, our, our_g, by / our_g / 1e3, fl / our_g / 1e6,
          100 * limit / our_g, 100 * limit / lib_g);
      cudaFree(x.data), cudaFree(out.data);
    }
}

// All products of some layers in sequence, as a step has them, with a small kernel between them.
__global__ void between(__nv_bfloat16* x, const __nv_bfloat16* y, int n) {
  let_next_start();
  wait_for_previous();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    x[i] = __float2bfloat16_rn(__bfloat162float(y[i]) * 1e-3f + 0.01f * (i % 7));
}

void layers(Context& c, const char* name, const std::vector<Shape>& shapes, int rows, char* weights,
            size_t weight_bytes, bool gated_second, bool with_library, bool with_between) {
  size_t per_layer = 0;
  for (const Shape& s : shapes) per_layer += size_t(s.out) * s.in * 2;
  const int count = static_cast<int>(std::min<size_t>(weight_bytes / per_layer, 8));
  const Tensor x = random(DType::kBF16, {rows, 32768}, 7), out = make(DType::kBF16, {rows, 32768});
  fill(out, 9);
  CublasLt library;
  const auto step = [&](bool ours) {
    char* at = weights;
    for (int l = 0; l < count; ++l)
      for (size_t i = 0; i < shapes.size(); ++i) {
        Tensor in = x, o = out;
        const Linear w = matrix(at, shapes[i]);
        in.dim[1] = in.row_stride = shapes[i].in;
        o.dim[1] = o.row_stride = shapes[i].out;
        if (ours && gated_second && i == 2) {
          o.dim[1] = o.row_stride = shapes[i].out / 2;
          c.dense.streamed().gated_product(o, in, w, Act::kSilu, c.stream);
        } else if (ours) {
          c.dense.streamed().product(o, in, w, c.stream);
        } else {
          library.product(o, in, w, c.cublas_scratch, c.stream);
        }
        at += size_t(shapes[i].out) * shapes[i].in * 2;
        if (with_between)
          launch(between, {rows, 256, 0, c.stream}, static_cast<__nv_bfloat16*>(x.data),
                 static_cast<const __nv_bfloat16*>(out.data), rows * 2560);
      }
  };
  const double our = graph_us([&] { step(true); }, c.stream) / count;
  double lib = 0;
  if (with_library) {
    char* at = weights;
    for (const Shape& s : shapes) {
      Tensor in = x, o = out;
      const Linear w = matrix(at, s);
      in.dim[1] = in.row_stride = s.in, o.dim[1] = o.row_stride = s.out;
      for (int i = 0; i < kTrials; ++i) library.tune(o, in, w, c.cublas_scratch, c.stream);
    }
    library.settle();
    lib = graph_us([&] { step(false); }, c.stream) / count;
  }
  const double limit = per_layer / kReadLimit * 1e6;
  std::printf(
      "layer of %-10s rows %3d%s%s: ours %7.1f us (%4.0f GB/s, %3.0f %%)  cublas %7.1f us (%3.0f "
      "%%)  limit %.1f us\n",
      name, rows, gated_second ? " gated" : "", with_between ? " kernels between" : "", our,
      per_layer / our / 1e3, 100 * limit / our, lib, lib > 0 ? 100 * limit / lib : 0, limit);
  cudaFree(x.data), cudaFree(out.data);
}

int run(int argc, char** argv) {
  const bool quick = argc > 1 && !std::strcmp(argv[1], "check");
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "starting");
  const size_t bytes = DenseProducts::scratch_bytes(1024, 8192);
  void *scratch, *cublas_scratch;
  check(cudaMalloc(&scratch, bytes), "allocating");
  check(cudaMalloc(&cublas_scratch, CublasLt::kWorkspaceBytes), "allocating");
  DenseProducts dense(scratch, bytes);
  Context c = {stream, dense, cublas_scratch};
  correctness(c);
  invariance(c);
  std::printf("%d products checked against the formula, %d failures\n", c.checks, c.failures);
  if (quick || c.failures > 0) return c.failures != 0;
  const size_t weight_bytes = size_t{4} << 30;
  char* weights;
  check(cudaMalloc(&weights, weight_bytes), "allocating");
  fill_kernel<<<2048, 256>>>(weights, false, weight_bytes / 2, 11, 0.5f);
  check(cudaDeviceSynchronize(), "filling");
  const std::vector<Shape> llama = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}};
  const std::vector<Shape> ernie = {{3584, 2560}, {2560, 2560}};
  for (int rows : {1, 8, 16, 32, 64, 128})
    for (int between_them = 0; between_them < 2; ++between_them)
      layers(c, "Llama-8B", llama, rows, weights, weight_bytes, true, true, between_them);
  for (int rows : {1, 32, 128})
    layers(c, "ERNIE attn", ernie, rows, weights, weight_bytes, false, true, true);
  single(c, llama, {1, 8, 16, 32, 64, 128}, weights, weight_bytes);
  single(c, {{3584, 2560}, {2560, 2560}, {103424, 2560}, {128256, 4096}}, {1, 16, 128}, weights,
         weight_bytes);
  single(c, llama, {256, 2048, 8192}, weights, weight_bytes);
  sync(c);
  return c.failures != 0;
}

}  // namespace
}  // namespace skiff::cuda::bench

int main(int argc, char** argv) {
  using namespace skiff::cuda::bench;
  return status_of(run, argc, argv);
}
