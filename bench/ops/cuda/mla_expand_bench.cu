// latent_attend where sequences are computed un-absorbed: compared with the formula in double, then
// timed beside the absorbed form.
#include <cmath>

#include "mla_world.cuh"
#include "ops/cuda/hopper/tensor_map.h"

namespace skiff::cuda::bench {
namespace {

constexpr int kNope = kExpandNope, kValue = kExpandValue, kKey = kExpandNope + kExpandRope;
constexpr double kPairFlops = 2 * (kKey + kValue);

// The formula, one block for each vector: value [n, 128].
__global__ void naive_expanded(const Vector* vectors, int heads, const __nv_bfloat16* q,
                               const __nv_bfloat16* absorb, const __nv_bfloat16* up_v,
                               const __nv_bfloat16* cache, const int32_t* pages,
                               int64_t pages_stride, int max_kv, double scale, double* scores,
                               double* value) {
  __shared__ double query[kCols], sums[256], mean[kRank];
  const Vector at = vectors[blockIdx.x];
  const int head = at.vector % heads, tid = static_cast<int>(threadIdx.x);
  double* s = scores + int64_t{blockIdx.x} * max_kv;
  const auto number = [](const __nv_bfloat16& x) { return double{__bfloat162float(x)}; };
  const auto cached = [&](int t) {
    const int64_t page = pages[at.seq * pages_stride + t / kPage];
    return cache + (page * kPage + t % kPage) * kCols;
  };
  const __nv_bfloat16* mine = q + int64_t{at.vector} * kKey;
  for (int i = tid; i < kCols; i += blockDim.x) {
    double sum = 0;
    for (int n = 0; i < kRank && n < kNope; ++n)
      sum += number(mine[n]) * number(absorb[(int64_t{head} * kRank + i) * kNope + n]);
    query[i] = i < kRank ? sum : number(mine[kNope + i - kRank]);
  }
  __syncthreads();
  for (int t = tid; t <= at.position; t += blockDim.x) {
    double sum = 0;
    for (int i = 0; i < kCols; ++i) sum += query[i] * number(cached(t)[i]);
    s[t] = sum * scale;
  }
  __syncthreads();
  double best = -INFINITY, total = 0;
  for (int t = 0; t <= at.position; ++t) best = fmax(best, s[t]);
  __syncthreads();
  for (int t = tid; t <= at.position; t += blockDim.x) total += s[t] = exp(s[t] - best);
  sums[tid] = total;
  __syncthreads();
  total = 0;
  for (int i = 0; i < blockDim.x; ++i) total += sums[i];
  for (int i = tid; i < kRank; i += blockDim.x) {
    double sum = 0;
    for (int t = 0; t <= at.position; ++t) sum += s[t] * number(cached(t)[i]);
    mean[i] = sum / total;
  }
  __syncthreads();
  for (int o = tid; o < kValue; o += blockDim.x) {
    double sum = 0;
    for (int i = 0; i < kRank; ++i)
      sum += mean[i] * number(up_v[(int64_t{head} * kValue + o) * kRank + i]);
    value[int64_t{blockIdx.x} * kValue + o] = sum;
  }
}

// A step, and the weights of its heads, which keep the size of what they multiply.
struct Layer {
  Layer(Cache cache, int heads, const std::vector<Piece>& pieces, int padding = 0)
      : world(cache, heads, pieces, 1, padding),
        arena(Buffer({Device::kCuda, 0}, static_cast<size_t>(world.out.rows()) * 2100 + 4096)) {
    const float size = std::sqrt(3.0f / kRank);
    absorb = {.weight = random(DType::kBF16, {heads, kRank, kNope}, 21, size), .experts = heads};
    value = {.weight = random(DType::kBF16, {heads, kValue, kRank}, 22, size), .experts = heads};
    const int64_t rows = world.batch.num_tokens;
    q = world.q.reshaped({rows, int64_t{heads} * kKey});
    values = make(DType::kBF16, {rows, int64_t{heads} * kValue});
  }
  ~Layer() {
    for (const Tensor& t : {absorb.weight, value.weight, values}) cudaFree(t.data);
  }
  void run(Machine& m) {
    const LatentStep step = {values, q, absorb, value, world.spec, world.batch, world.kvs[0]};
    latent_attend(step, {*m.attention, *m.products, *m.expanded}, arena, m.stream);
  }
  // Computes the operations of Ops::latent_attend one after the other.
  void run_absorbed(Machine& m) {
    const Tensor by_head = q.reshaped({world.out.rows(), kKey});
    m.products->product(world.q_latent, by_head.col_range(0, kNope), absorb, m.stream);
    m.attend(world, world.kvs[0]);
    m.products->product(values.reshaped({world.out.rows(), kValue}), world.out, value, m.stream);
  }

  World world;
  Arena arena;
  Linear absorb, value;
  Tensor q, values;
};

double number(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float f;
  memcpy(&f, &wide, 4);
  return static_cast<double>(f);
}

std::vector<double> formula(const Layer& l, const std::vector<Vector>& some) {
  const World& w = l.world;
  const size_t n = some.size();
  Vector* list;
  double *scores, *value;
  check(cudaMalloc(&list, n * sizeof(Vector)), "allocating");
  check(cudaMalloc(&scores, n * static_cast<size_t>(w.max_kv) * 8), "allocating");
  check(cudaMalloc(&value, n * kValue * 8), "allocating");
  check(cudaMemcpy(list, some.data(), n * sizeof(Vector), cudaMemcpyHostToDevice), "copying");
  const auto data = [](const Tensor& t) { return static_cast<const __nv_bfloat16*>(t.data); };
  naive_expanded<<<static_cast<unsigned>(n), 256>>>(
      list, w.spec.heads, data(l.q), data(l.absorb.weight), data(l.value.weight), w.values,
      w.batch.pages.as<int32_t>(), w.batch.pages.row_stride, w.max_kv,
      static_cast<double>(w.spec.scale), scores, value);
  check(cudaDeviceSynchronize(), "running the naive kernel");
  const auto want = host<double>(value, static_cast<int64_t>(n * kValue));
  cudaFree(list), cudaFree(scores), cudaFree(value);
  return want;
}

// The error of a vector against its length. Keys, values, weights and the result are rounded
// independently, each by about 0.4 * 2^-8, so four times 2^-8 are eight times that of one.
void check_step(Machine& m, Cache cache, int heads, const std::vector<Piece>& pieces,
                int padding = 0) {
  Layer l(cache, heads, pieces, padding);
  std::vector<Vector> some = l.world.vectors;
  std::mt19937 random(3);
  std::shuffle(some.begin(), some.end() - 1, random);  // the last is the end of a prompt
  if (some.size() > 400) some.erase(some.begin(), some.end() - 400);
  const std::vector<double> want = formula(l, some);
  const auto run = [&] {
    poison(l.values);
    m.begin_step(l.world);
    l.run(m);
    check(cudaDeviceSynchronize(), "attending");
    return host<uint16_t>(l.values.data, l.values.elements());
  };
  const std::vector<uint16_t> got = run();
  double worst = 0;
  for (size_t i = 0; i < some.size(); ++i) {
    double squares = 0, all = 0;
    for (size_t o = 0; o < kValue; ++o) {
      const double y = want[i * kValue + o];
      const double x = number(got[static_cast<size_t>(some[i].vector) * kValue + o]);
      squares += (x - y) * (x - y), all += y * y;
    }
    const double error = std::sqrt(squares / all) / (4 * 0x1p-8);
    worst = error <= worst ? worst : error;  // NaN sticks
  }
  bool unwritten = false, padded = true, same = true;
  for (size_t i = 0; i < got.size(); ++i) {
    unwritten |= std::isnan(number(got[i]));
    if (i >= l.world.vectors.size() * kValue) padded &= got[i] == 0;
  }
  for (int i = 0; i < 2; ++i) same &= run() == got;
  report(worst <= 1 && !unwritten && padded && same,
         fmt::format("un-absorbed, {}, {} heads, {} vectors, first {} after {}: error {:.3f} of "
                     "bound{}{}{}",
                     name_of(cache), heads, l.world.vectors.size(), pieces[0].rows, pieces[0].begin,
                     worst, unwritten ? ", UNWRITTEN" : "", padded ? "" : ", PADDING NOT ZERO",
                     same ? "" : ", SECOND RUN DIFFERS"));
}

// The attention alone, to keys and values that lie there: all heads in one launch.
double attention_us(Machine& m, const Layer& l) {
  const World& w = l.world;
  const auto passes = make_expand_passes(w.row_start, w.kv_len);
  if (passes.size() != 1) return NAN;
  const int64_t positions = passes[0].spans.positions, heads = w.spec.heads;
  const Tensor k = random(DType::kBF16, {heads * positions, kNope}, 31);
  const Tensor v = random(DType::kBF16, {heads * positions, kValue}, 32);
  const Tensor rope = random(DType::kBF16, {positions, kExpandRope}, 33);
  const auto map = [](const Tensor& t) {
    const uint64_t size[] = {static_cast<uint64_t>(t.cols()), static_cast<uint64_t>(t.rows())};
    const uint64_t stride[] = {static_cast<uint64_t>(t.row_stride) * 2};
    const uint32_t box[] = {64, kExpandTile};
    return tensor_map(t.data, size, stride, box);
  };
  int processors = 0;
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "asking");
  const Tensor next = make(DType::kI32, {1});
  const double us = graph_us(
      [&] {
        check(cudaMemsetAsync(next.data, 0, 4, m.stream), "clearing a counter");
        start_expand_attend({.pass = passes[0],
                             .out = l.values.data,
                             .out_stride = l.values.row_stride,
                             .first_head = 0,
                             .heads = static_cast<int>(heads),
                             .section = expand_section(static_cast<int>(heads)),
                             .scale_log2 = w.spec.scale * 1.44269504088896f,
                             .next = next.as<int32_t>()},
                            {map(l.q), map(k), map(rope), map(v)}, processors, m.stream);
      },
      m.stream);
  for (const Tensor& t : {k, v, rope, next}) cudaFree(t.data);
  return us;
}

void time_step(Machine& m, const std::string& what, Cache cache, int heads,
               const std::vector<Piece>& pieces) {
  Layer l(cache, heads, pieces);
  m.begin_step(l.world);
  l.run(m), l.run_absorbed(m);
  check(cudaStreamSynchronize(m.stream), "warming up");
  const double alone = attention_us(m, l);
  const double whole = graph_us([&] { l.run(m); }, m.stream);
  const double absorbed = graph_us([&] { l.run_absorbed(m); }, m.stream);
  const double flops = l.world.pairs * kPairFlops;
  fmt::print(
      "latent_attend {:<16} {:>3} heads {:<8} attention alone {:9.1f} us {:6.1f} TFLOP/s {:5.1f} % "
      "of 790; un-absorbed {:9.1f} us, absorbed {:9.1f} us, {:.2f} times\n",
      what, heads, name_of(cache), alone, flops / alone / 1e6, 1e8 * flops / alone / kMatrixLimit,
      whole, absorbed, absorbed / whole);
}

}  // namespace

void check_expanded(Machine& m) {
  const std::vector<Piece> mixed = {{0, 1},   {0, 300}, {1000, 200}, {500, 1},
                                    {63, 70}, {0, 128}, {63, 129},   {3000, 700}};
  for (const Cache cache : kCaches) {
    for (const int heads : {1, 16, 32, 128}) check_step(m, cache, heads, mixed, 3);
    check_step(m, cache, 128, {{5000, 300}});
    check_step(m, cache, 2, {{20000, 1000}});
    check_step(m, cache, 16, std::vector<Piece>(40, Piece{60, 300}));
    check_step(m, cache, 16, {{0, 4096}});
  }
}

void time_expanded(Machine& m) {
  for (const int heads : {16, 128}) {
    for (const int rows : {1024, 2048, 4096, 8192, 16384})
      time_step(m, fmt::format("{}", rows), Cache::kBF16, heads, {{0, rows}});
    time_step(m, "8 x 1024", Cache::kBF16, heads, std::vector<Piece>(8, Piece{0, 1024}));
    time_step(m, "2048 after 6144", Cache::kBF16, heads, {{6144, 2048}});
    for (const int rows : {192, 256, 384, 512, 1024})
      time_step(m, fmt::format("{} after 8192", rows), Cache::kBF16, heads, {{8192, rows}});
    for (const int rows : {128, 256, 512})
      time_step(m, fmt::format("{}", rows), Cache::kBF16, heads, {{0, rows}});
    time_step(m, "8192", Cache::kRows, heads, {{0, 8192}});
  }
  time_step(m, "8192 after 32768", Cache::kBF16, 128, {{32768, 8192}});
}

}  // namespace skiff::cuda::bench
