// bench/ops/cuda/moe_bench.cu -- mixture of experts on the device: right first, then how fast.
// Arguments: "check", or the numbers of tokens to time.
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "harness.cuh"
#include "ops/cuda/linear/dense.h"
#include "ops/cuda/linear/pack_tiles.h"
#include "ops/cuda/linear/tiles.h"
#include "ops/cuda/moe/experts.h"
#include "ops/cuda/moe/route.h"
#include "tensor/memory.h"

namespace skiff::cuda::bench {
namespace {

constexpr double kReadLimit = 4.5e12, kBf16Limit = 790e12;

struct Context {
  cudaStream_t stream;
  DenseProducts& dense;
  int checks = 0, failures = 0;
};

Routing make_routing(int tokens, const Router& r) {
  return {.expert = make(DType::kI32, {tokens, r.per_token()}),
          .weight = make(DType::kF32, {tokens, r.per_token()}),
          .order = make(DType::kI32, {int64_t{tokens} * r.per_token()}),
          .expert_start = make(DType::kI32, {r.total() + 1}),
          .always = r.always,
          .experts = r.experts};
}
void release(const Routing& r) {
  cudaFree(r.expert.data), cudaFree(r.weight.data), cudaFree(r.order.data),
      cudaFree(r.expert_start.data);
}

void route_case(Context& c, int tokens, const Router& r, int live, bool nan) {
  const Tensor logits =
      random(DType::kF32, {tokens, r.experts}, static_cast<uint64_t>(tokens + r.experts), 3);
  const Tensor bias = r.bias ? random(DType::kF32, {r.experts}, 5, 0.05f) : Tensor{};
  if (nan) check(cudaMemset(logits.data, 0xff, 4 * size_t(r.experts)), "spoiling");
  int32_t* live_on_device;
  check(cudaMalloc(&live_on_device, 4), "allocating");
  check(cudaMemcpy(live_on_device, &live, 4, cudaMemcpyHostToDevice), "copying");
  const int all = r.per_token();
  const Routing got = make_routing(tokens, r);
  route(got, logits, bias, r, live < tokens ? live_on_device : nullptr, c.stream);
  check(cudaStreamSynchronize(c.stream), "routing");
  const auto l = host<float>(logits.data, int64_t{tokens} * r.experts);
  const auto b = r.bias ? host<float>(bias.data, r.experts) : std::vector<float>(r.experts, 0.0f);
  const auto expert = host<int32_t>(got.expert.data, int64_t{tokens} * all);
  const auto weight = host<float>(got.weight.data, int64_t{tokens} * all);
  const auto order = host<int32_t>(got.order.data, int64_t{tokens} * all);
  const auto start = host<int32_t>(got.expert_start.data, r.total() + 1);
  int wrong = 0;
  for (int t = 0; t < std::min(live, tokens); ++t) {
    std::vector<double> p(r.experts);
    double best = -INFINITY, sum = 0;
    for (int e = 0; e < r.experts; ++e) best = std::max<double>(best, l[t * r.experts + e]);
    for (int e = 0; e < r.experts; ++e) sum += p[e] = std::exp(l[t * r.experts + e] - best);
    for (double& v : p) v /= sum;
    std::vector<int> ids(r.experts);
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(),
                     [&](int x, int y) { return p[x] + b[x] > p[y] + b[y]; });
    double chosen = 0;
    for (int k = 0; k < r.top_k; ++k) chosen += p[ids[k]];
    for (int k = 0; k < r.top_k; ++k) {
      const int e = expert[t * all + k];
      if (e < 0 || e >= r.experts) {
        ++wrong;
        continue;
      }
      if (nan && t == 0) continue;
      const double want = p[ids[k]] / (r.renorm ? std::max(chosen, 1e-12) : 1);
      if (e != ids[k] && std::abs(p[e] + b[e] - p[ids[k]] - b[ids[k]]) > 1e-6) ++wrong;
      if (e == ids[k] &&
          !(std::abs(weight[t * all + k] - want) <= (2 * r.experts + 33) * 0x1p-24 * want))
        ++wrong;
    }
    for (int k = r.top_k; k < all; ++k)
      wrong += expert[t * all + k] != r.experts + k - r.top_k || weight[t * all + k] != 1;
  }
  std::vector<int> want(static_cast<size_t>(std::min(live, tokens)) * all);
  std::iota(want.begin(), want.end(), 0);
  std::stable_sort(want.begin(), want.end(), [&](int x, int y) { return expert[x] < expert[y]; });
  for (size_t i = 0; i < want.size(); ++i) wrong += order[i] != want[i];
  for (int e = 0; e <= r.total(); ++e)
    wrong +=
        start[e] != static_cast<int>(std::count_if(expert.begin(), expert.begin() + want.size(),
                                                   [&](int x) { return x < e; }));
  for (size_t i = want.size(); i < expert.size(); ++i) wrong += expert[i] != -1 || weight[i] != 0;
  if (wrong)
    std::printf("route tokens %d experts %d top_k %d always %d live %d: %d WRONG\n", tokens,
                r.experts, r.top_k, r.always, live, wrong);
  ++c.checks;
  c.failures += wrong != 0;
  release(got), cudaFree(logits.data), cudaFree(bias.data), cudaFree(live_on_device);
}

struct Ref {
  const void *x, *gate_up, *down, *out;
  bool f32;
  int64_t x_stride, out_stride;
  const int32_t *expert, *tokens;
  const float* weight;
  int hidden, width, top_k;
  double *middle, *sums;  // [samples, top_k, width]; squared error and size
};
__global__ void middle_kernel(Ref r) {
  const int s = blockIdx.z, k = blockIdx.y, t = r.tokens[s], e = r.expert[t * r.top_k + k];
  const int i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (i >= r.width || e < 0) return;
  double g = 0, u = 0;
  for (int h = lane; h < r.hidden; h += 32) {
    const double x = value(r.x, r.f32, t * r.x_stride + h);
    g += x * value(r.gate_up, r.f32, (int64_t{e} * 2 * r.width + i) * r.hidden + h);
    u += x * value(r.gate_up, r.f32, (int64_t{e} * 2 * r.width + r.width + i) * r.hidden + h);
  }
  for (int m = 16; m; m /= 2) g += __shfl_xor_sync(~0u, g, m), u += __shfl_xor_sync(~0u, u, m);
  if (lane == 0) r.middle[(int64_t{s} * r.top_k + k) * r.width + i] = g / (1 + exp(-g)) * u;
}
__global__ void outer_kernel(Ref r) {
  const int s = blockIdx.y, t = r.tokens[s], o = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32,
            lane = threadIdx.x % 32;
  if (o >= r.hidden) return;
  double want = 0;
  for (int k = 0; k < r.top_k; ++k) {
    const int e = r.expert[t * r.top_k + k];
    if (e < 0) continue;
    for (int i = lane; i < r.width; i += 32)
      want += r.weight[t * r.top_k + k] * r.middle[(int64_t{s} * r.top_k + k) * r.width + i] *
              value(r.down, r.f32, (int64_t{e} * r.hidden + o) * r.width + i);
  }
  for (int m = 16; m; m /= 2) want += __shfl_xor_sync(~0u, want, m);
  if (lane) return;
  const double d = value(r.out, r.f32, t * r.out_stride + o) - want;
  atomicAdd(r.sums, d == d ? d * d : 1e30);
  atomicAdd(r.sums + 1, want * want);
}

struct Model {
  int experts, top_k, hidden, width, always = 0;

  Router router() const { return {.experts = experts, .top_k = top_k, .always = always}; }
};

// A copy of the weights, as tiles where they fit.
Linear packed(const Linear& w, cudaStream_t stream) {
  const int64_t rows = w.weight.dim[1], in = w.weight.dim[2];
  Linear to = w;
  to.weight = make(w.weight.dtype, {w.experts, rows, in});
  if (w.weight.dtype != DType::kBF16 || !fits_tiles(rows, in)) {
    check(cudaMemcpy(to.weight.data, w.weight.data,
                     static_cast<size_t>(w.weight.elements()) * bytes(w.weight.dtype),
                     cudaMemcpyDeviceToDevice),
          "copying");
    return to;
  }
  to.packing = Packing::kTiles;
  const Tensor all = w.weight.reshaped({w.experts * rows, in});
  for (int64_t e = 0; e < w.experts; ++e)
    pack_tiles(static_cast<char*>(to.weight.data) + e * rows * in * 2,
               all.row_range(e * rows, rows), stream);
  check(cudaStreamSynchronize(stream), "packing");
  return to;
}

void experts_case(Context& c, int tokens, const Model& m, DType act, bool skewed, int live) {
  const Router r = m.router();
  const Tensor x = random(act, {tokens, m.hidden}, 1), out = make(act, {tokens, m.hidden});
  const float scale = 1.5f / std::sqrt(static_cast<float>(m.hidden));
  const Linear gate_up = {.weight = random(act, {r.total(), 2 * m.width, m.hidden}, 2, scale),
                          .experts = r.total()};
  const Linear down = {.weight = random(act, {r.total(), m.hidden, m.width}, 3, scale),
                       .experts = r.total()};
  const Tensor logits = random(DType::kF32, {tokens, m.experts}, 4, 3);
  Tensor bias = make(DType::kF32, {m.experts});
  std::vector<float> b(m.experts);
  for (int e = 0; e < m.experts; ++e) b[e] = skewed && e >= m.top_k ? -10 : 0;
  check(cudaMemcpy(bias.data, b.data(), b.size() * 4, cudaMemcpyHostToDevice), "copying");
  int32_t* live_on_device;
  check(cudaMalloc(&live_on_device, 4), "allocating");
  check(cudaMemcpy(live_on_device, &live, 4, cudaMemcpyHostToDevice), "copying");
  const Routing routing = make_routing(tokens, r);
  Arena arena(Buffer({Device::kCuda, 0}, experts_bytes(act, tokens, r, m.hidden, m.width)));
  for (int again = 0; again < 2; ++again) {
    poison(out);
    route(routing, logits, bias, r, live_on_device, c.stream);
    combine(
        experts(out, x, routing, {gate_up, down, Act::kSilu}, c.dense.streamed(), arena, c.stream),
        c.stream);
    check(cudaStreamSynchronize(c.stream), "experts");
  }
  const Linear tiles_gate_up = packed(gate_up, c.stream), tiles_down = packed(down, c.stream);
  const Tensor from_tiles = make(act, {tokens, m.hidden});
  combine(experts(from_tiles, x, routing, {tiles_gate_up, tiles_down, Act::kSilu},
                  c.dense.streamed(), arena, c.stream),
          c.stream);
  check(cudaStreamSynchronize(c.stream), "experts");
  const auto out_bytes = static_cast<int64_t>(bytes(act)) * out.elements();
  const bool same = host<char>(out.data, out_bytes) == host<char>(from_tiles.data, out_bytes);
  std::vector<int32_t> sample;
  for (int i = 0; i < std::min(live, 6); ++i)
    sample.push_back(static_cast<int>(int64_t{i} * (live - 1) / 5 % live));
  Ref ref = {x.data,
             gate_up.weight.data,
             down.weight.data,
             out.data,
             act == DType::kF32,
             x.row_stride,
             out.row_stride,
             routing.expert.as<int32_t>(),
             nullptr,
             routing.weight.as<float>(),
             m.hidden,
             m.width,
             r.per_token(),
             nullptr,
             nullptr};
  int32_t* samples_on_device;
  check(cudaMalloc(&samples_on_device, sample.size() * 4), "allocating");
  check(cudaMemcpy(samples_on_device, sample.data(), sample.size() * 4, cudaMemcpyHostToDevice),
        "copying");
  ref.tokens = samples_on_device;
  check(cudaMalloc(&ref.middle, sample.size() * r.per_token() * m.width * 8), "allocating");
  check(cudaMalloc(&ref.sums, 16), "allocating");
  check(cudaMemset(ref.sums, 0, 16), "clearing");
  middle_kernel<<<dim3((m.width + 7) / 8, r.per_token(), sample.size()), 256>>>(ref);
  outer_kernel<<<dim3((m.hidden + 7) / 8, sample.size()), 256>>>(ref);
  const auto sums = host<double>(ref.sums, 2);
  const double error = std::sqrt(sums[0] / sums[1]), limit = act == DType::kF32 ? 2e-6 : 5e-3;
  const bool wrong = !(error < limit) || !same;
  ++c.checks;
  c.failures += wrong;
  std::printf(
      "experts tokens %d (live %d) experts %d top %d + %d %dx%d %s%s: error %.2e of size%s%s\n",
      tokens, live, m.experts, m.top_k, m.always, m.hidden, m.width,
      act == DType::kF32 ? "f32" : "bf16", skewed ? " skewed" : "", error,
      same ? "" : ", other bits from tiles", wrong ? " WRONG" : "");
  for (const Tensor& t : {x, out, gate_up.weight, down.weight, tiles_gate_up.weight,
                          tiles_down.weight, from_tiles, logits, bias})
    cudaFree(t.data);
  release(routing), cudaFree(live_on_device), cudaFree(samples_on_device), cudaFree(ref.middle),
      cudaFree(ref.sums);
}

void timing(Context& c, const Model& m, const std::vector<int>& tokens_list) {
  const Router r = m.router();
  constexpr int kLayers = 4;
  const float scale = 1.5f / std::sqrt(static_cast<float>(m.hidden));
  std::vector<Linear> gate_up, down, tiles_gate_up, tiles_down;
  std::vector<Linear> router;
  for (int l = 0; l < kLayers; ++l) {
    router.push_back(
        {.weight = random(DType::kBF16, {m.experts, m.hidden}, 60 + l, 2 * scale), .bias = {}});
    gate_up.push_back(
        {.weight = random(DType::kBF16, {r.total(), 2 * m.width, m.hidden}, 2 + l, scale),
         .experts = r.total()});
    down.push_back({.weight = random(DType::kBF16, {r.total(), m.hidden, m.width}, 30 + l, scale),
                    .experts = r.total()});
    tiles_gate_up.push_back(packed(gate_up.back(), c.stream));
    tiles_down.push_back(packed(down.back(), c.stream));
  }
  for (int tokens : tokens_list) {
    const Tensor x = random(DType::kBF16, {tokens, m.hidden}, 1),
                 out = make(DType::kBF16, {tokens, m.hidden});
    std::vector<Tensor> logits;
    for (int l = 0; l < kLayers; ++l)
      logits.push_back(random(DType::kF32, {tokens, m.experts}, 40 + l, 3));
    const Routing routing = make_routing(tokens, r);
    Arena arena(
        Buffer({Device::kCuda, 0}, experts_bytes(DType::kBF16, tokens, r, m.hidden, m.width)));
    double active = 0;
    for (int l = 0; l < kLayers; ++l) {
      c.dense.product(logits[l], x, router[l], c.stream);
      route(routing, logits[l], {}, r, nullptr, c.stream);
      check(cudaStreamSynchronize(c.stream), "routing");
      const auto start = host<int32_t>(routing.expert_start.data, r.total() + 1);
      for (int e = 0; e < r.total(); ++e) active += (start[e + 1] > start[e]) / double(kLayers);
    }
    const double routing_us = graph_us(
                                  [&] {
                                    for (int l = 0; l < kLayers; ++l) {
                                      c.dense.product(logits[l], x, router[l], c.stream);
                                      route(routing, logits[l], {}, r, nullptr, c.stream);
                                    }
                                  },
                                  c.stream) /
                              kLayers;
    const auto layer_us = [&](const std::vector<Linear>& up, const std::vector<Linear>& out_of) {
      return graph_us(
                 [&] {
                   for (int l = 0; l < kLayers; ++l) {
                     c.dense.product(logits[l], x, router[l], c.stream);
                     route(routing, logits[l], {}, r, nullptr, c.stream);
                     combine(experts(out, x, routing, {up[l], out_of[l], Act::kSilu},
                                     c.dense.streamed(), arena, c.stream),
                             c.stream);
                   }
                 },
                 c.stream) /
             kLayers;
    };
    const double us = layer_us(gate_up, down), tiles_us = layer_us(tiles_gate_up, tiles_down);
    const double bytes_read = active * 3 * m.width * m.hidden * 2,
                 flops = 6.0 * tokens * r.per_token() * m.width * m.hidden;
    const double limit = std::max(bytes_read / kReadLimit, flops / kBf16Limit) * 1e6;
    std::printf(
        "moe %dx%d E%d top%d + %d tokens %5d: %8.1f us (router and route %5.1f) %5.0f GB/s %6.1f "
        "TFLOP/s %3.0f %% "
        "of limit, %.1f experts active; as tiles %8.1f us\n",
        m.hidden, m.width, m.experts, m.top_k, m.always, tokens, us, routing_us,
        bytes_read / us / 1e3, flops / us / 1e6, 100 * limit / us, active, tiles_us);
    cudaFree(x.data), cudaFree(out.data), release(routing);
    for (const Tensor& t : logits) cudaFree(t.data);
  }
  for (int l = 0; l < kLayers; ++l)
    cudaFree(gate_up[l].weight.data), cudaFree(down[l].weight.data),
        cudaFree(tiles_gate_up[l].weight.data), cudaFree(tiles_down[l].weight.data),
        cudaFree(router[l].weight.data);
}

int run(int argc, char** argv) {
  const bool quick = argc > 1 && !std::strcmp(argv[1], "check");
  std::vector<int> tokens_list;  // the numbers of tokens to time
  for (int i = 1; !quick && i < argc; ++i) tokens_list.push_back(std::atoi(argv[i]));
  if (tokens_list.empty()) tokens_list = {1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 8192};
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "starting");
  const size_t bytes = DenseProducts::scratch_bytes(0, 0);
  void* scratch;
  check(cudaMalloc(&scratch, bytes), "allocating");
  DenseProducts dense(scratch, bytes);
  Context c = {stream, dense};
  for (int tokens : {1, 2, 17, 32, 70, 1000, 8192})
    for (int experts : {1, 7, 64, 130, 512})
      for (int k : {1, 6, 16})
        for (int variant = 0; variant < 4; ++variant)
          if (k <= experts)
            route_case(c, tokens,
                       {.experts = experts,
                        .top_k = k,
                        .renorm = (variant & 1) != 0,
                        .bias = (variant & 2) != 0,
                        .always = experts == 512 ? 0 : (tokens + variant) % 3},
                       variant & 1 ? tokens : (tokens + 1) / 2, variant == 3);
  std::printf("%d routings checked, %d failures\n", c.checks, c.failures);
  const Model ernie = {64, 6, 2560, 1536, 2};
  for (int skewed = 0; skewed < 2; ++skewed) {
    experts_case(c, 17, {5, 3, 33, 21}, DType::kF32, skewed, 17);
    experts_case(c, 17, {8, 8, 64, 48}, DType::kBF16, skewed, 17);
    experts_case(c, 40, {6, 2, 65, 17}, DType::kBF16, skewed, 33);
    experts_case(c, 33, {4, 2, 96, 32}, DType::kBF16, skewed, 33);
    experts_case(c, 300, {16, 4, 264, 200}, DType::kBF16, skewed, 299);
    experts_case(c, 1, {8, 3, 64, 48, 2}, DType::kBF16, skewed, 1);
    for (int tokens : {1, 2, 8, 17, 33, 128, 129, 256, 700, 1024, 3000})
      experts_case(c, tokens, ernie, DType::kBF16, skewed, std::max(1, tokens - 2));
  }
  std::printf("%d routings and mixtures checked against the formula, %d failures\n", c.checks,
              c.failures);
  if (!quick && c.failures == 0) timing(c, ernie, tokens_list);
  return c.failures != 0;
}

}  // namespace
}  // namespace skiff::cuda::bench

int main(int argc, char** argv) {
  using namespace skiff::cuda::bench;
  return status_of(run, argc, argv);
}
