#include <algorithm>

#include "ops/suite/formats.h"
#include "weights/codes.h"

namespace skiff::suite {
namespace {

constexpr DType kF32 = DType::kF32, kF16 = DType::kF16, kBF16 = DType::kBF16, kI8 = DType::kI8,
                kU8 = DType::kU8, kI4 = DType::kI4, kU4 = DType::kU4, kF8 = DType::kF8E4M3,
                kF4 = DType::kF4E2M1;

// A tensor of small elements, every row of which begins at the beginning of a byte.
Tensor small_output(Workspace& ws, DType dtype, std::initializer_list<int64_t> shape) {
  Tensor t = host_tensor(nullptr, dtype, shape);
  SKIFF_CHECK(t.dim[t.dim[2] > 1 ? 2 : 1] * bits(dtype) % 8 == 0, "rows of half bytes");
  t.data = ws.output(kU8, {static_cast<int64_t>(byte_size(dtype, t.elements()))}).data;
  return t;
}

bool is_nan_code(DType dtype, unsigned code) { return dtype == kF8 && (code & 0x7f) == 0x7f; }

// Random codes that begin with each of them once, as far as there is room.
void fill_codes(Rng& rng, const Tensor& t) {
  const unsigned codes = 1u << bits(t.dtype);
  for (int64_t i = 0; i < t.elements(); ++i) {
    unsigned code = i < codes ? static_cast<unsigned>(i)
                              : static_cast<unsigned>(rng.below(static_cast<int>(codes)));
    if (is_nan_code(t.dtype, code)) code = 1;
    store_code(t.data, t.dtype, i, code);
  }
}

// Mostly around 1/64, so that products of 8-bit codes are moderate.
double random_scale(Rng& rng) {
  switch (rng.below(16)) {
    case 0:
      return 0;
    case 1:
      return 0x1p-20 * rng.normal();
    case 2:
      return 0x1p3 * rng.normal();
    default:
      return 0x1p-6 * rng.normal();
  }
}

Tensor random_blocks(Workspace& ws, DType dtype, const WeightShape& shape,
                     const WeightFormat& format, const std::function<double()>& draw) {
  const int64_t rows = num_blocks(shape.out, format.block_out);
  const int64_t cols = num_blocks(shape.in, format.block_in);
  const int64_t stack = std::max<int64_t>(1, shape.experts);
  Tensor flat;
  if (is_wide_float(dtype)) {
    flat = ws.output(dtype, {stack * rows * cols});
    for (int64_t i = 0; i < flat.elements(); ++i) put(flat, i, 0, draw());
  } else {
    const int64_t size = (stack * rows * cols * bits(dtype) + 7) / 8;
    flat = ws.output(kU8, {size});
    std::fill_n(flat.as<uint8_t>(), size, uint8_t{0});
    flat.dtype = dtype;
    for (int64_t i = 0; i < stack * rows * cols; ++i)
      store_code(flat.data, dtype, i,
                 static_cast<unsigned>(ws.rng.below(1 << std::min(8, bits(dtype)))));
  }
  return shape.experts ? host_tensor(flat.data, dtype, {stack, rows, cols})
                       : host_tensor(flat.data, dtype, {rows, cols});
}

double scale_of_row(const std::vector<double>& x, size_t begin, size_t end, float least,
                    const InputFormat& format) {
  float most = least;
  for (size_t i = begin; i < end; ++i) most = std::max(most, static_cast<float>(std::abs(x[i])));
  if (most == 0) return 1;
  return most / (format.dtype == kI8 ? 127.0f : 448.0f);
}

double rounded_to(double x, double scale, DType dtype) {
  const float quotient = static_cast<float>(x) / static_cast<float>(scale);
  const double code = dtype == kI8 ? std::clamp(std::nearbyint(quotient), -128.0f, 127.0f)
                                   : from_e4m3(to_e4m3(quotient));
  return code * scale;
}

// A device's tensor cores add 32 products of eight-bit floats and the sum so far as fixed-point
// numbers, cut off 13 bits below the largest of them: each of the 33 loses less than that bit's
// value, and at most itself. Every `chain` products begin a new sum, and are added up in float32.
double cut_by_tensor_cores(const std::vector<double>& products, size_t chain) {
  double cut = 0, sum = 0, cut_of_sum = 0;
  for (size_t begin = 0; begin < products.size(); begin += 32) {
    if (begin % chain == 0) sum = cut_of_sum = 0;
    const size_t end = std::min(products.size(), begin + 32);
    const double before = std::abs(sum) + cut_of_sum;
    double largest = before;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(products[i]));
    const double bit = 0x1p-13 * largest;
    double lost = std::min(before, bit);
    for (size_t i = begin; i < end; ++i) {
      lost += std::min(std::abs(products[i]), bit);
      sum += products[i];
    }
    cut_of_sum += lost;
    cut += lost;
  }
  return cut;
}

}  // namespace

std::vector<WeightFormat> quantized_formats() {
  const InputFormat tokens8{kI8, InputFormat::kToken}, static8{kI8, InputFormat::kStatic};
  const InputFormat groups{kF8, InputFormat::kGroups}, tokens{kF8, InputFormat::kToken},
      fixed{kF8, InputFormat::kStatic};
  return {{kI8, 1, 0, kBF16},
          {kI8, 1, 0, kF32},
          {kI8, 1, 128, kBF16},
          {kI8, 1, 16, kF32},
          {kI8, 1, 32, kF16},
          {kI4, 1, 0, kBF16},
          {kI4, 1, 128, kBF16},
          {kI4, 1, 64, kBF16},
          {kI4, 1, 32, kF16},
          {kU4, 1, 128, kF16, kU4},
          {kU4, 1, 64, kF16, kU8},
          {kU4, 1, 0, kF16, kU4},
          {kI4, 1, 128, kBF16, kI8},
          {kU8, 1, 128, kF16, kU8},
          {kU4, 1, 32, kF32, kF32},
          {kU4, 1, 32, kF16, kF16},
          {kU4, 1, 16, kF32, kF32},
          {kU8, 1, 32, kF32, kF32},
          {kU8, 1, 32, kF16, kF16},
          {kI4, 1, 16, kF32},
          {kI8, 1, 256, kF32},
          {kF4, 1, 32, kF32},
          {kF8, 128, 128, kF32},
          {kF8, 1, 0, kF32},
          {kF8, 0, 0, kF32},
          {kF8, 128, 128, kF32, {}, groups},
          {kF8, 1, 0, kF32, {}, tokens},
          {kF8, 0, 0, kF32, {}, fixed},
          {kI8, 1, 0, kF32, {}, tokens8},
          {kI8, 1, 0, kBF16, {}, static8},
          {kI4, 1, 0, kF32, {}, tokens8},
          {kI4, 1, 0, kF32, {}, static8},
          {kI4, 1, 128, kBF16, {}, tokens8}};
}

Linear random_weight(Workspace& ws, const WeightFormat& format, const WeightShape& shape) {
  Linear w{.format = format, .experts = shape.experts};
  w.weight = shape.experts ? small_output(ws, format.dtype, {shape.experts, shape.out, shape.in})
                           : small_output(ws, format.dtype, {shape.out, shape.in});
  fill_codes(ws.rng, w.weight);
  w.scale = random_blocks(ws, *format.scale, shape, format, [&] { return random_scale(ws.rng); });
  if (format.zero)
    w.zero = random_blocks(ws, *format.zero, shape, format, [&] { return ws.rng.normal(); });
  if (shape.bias) w.bias = ws.random(kF32, {shape.out}, 4);
  if (shape.order) w.order = ws.ints(ws.rng.shuffled(static_cast<int>(shape.in)));
  if (format.input && format.input->scales == InputFormat::kStatic) {
    w.input_scale = ws.output(kF32, {std::max<int64_t>(1, shape.experts)});
    // Rows are normal: some of them are clipped.
    for (int64_t i = 0; i < w.input_scale.elements(); ++i)
      put(w.input_scale, i, 0, (2 + ws.rng.uniform()) / (format.input->dtype == kI8 ? 127 : 448));
  }
  return w;
}

Entry weight_entry(const Linear& w, int64_t expert, int64_t out, int64_t in) {
  const WeightFormat& f = w.format;
  const int64_t rows = w.experts ? w.weight.dim[1] : w.weight.dim[0];
  const int64_t cols = w.experts ? w.weight.dim[2] : w.weight.dim[1];
  const int64_t blocks = num_blocks(cols, f.block_in);
  const int64_t block =
      (expert * num_blocks(rows, f.block_out) + (f.block_out ? out / f.block_out : 0)) * blocks +
      (f.block_in ? in / f.block_in : 0);
  const double code = code_value(w.weight.data, f.dtype, (expert * rows + out) * cols + in);
  const double scale = code_value(w.scale.data, *f.scale, block);
  if (!f.zero) return {scale * code, std::abs(scale * code)};
  const double zero = code_value(w.zero.data, *f.zero, block);
  const double minimum = is_wide_float(*f.zero) ? zero : scale * zero;
  return {scale * code - minimum, std::abs(scale * code) + std::abs(minimum)};
}

std::vector<double> rounded_input(std::vector<double> x, const Linear& w, int64_t expert) {
  std::vector<double> ordered;
  for (int64_t i = 0; w.order && i < w.order.elements(); ++i)
    ordered.push_back(x[static_cast<size_t>(w.order.as<int32_t>()[i])]);
  if (w.order) x = ordered;
  if (!w.format.input) return x;
  const InputFormat& format = *w.format.input;
  const bool groups = format.scales == InputFormat::kGroups;
  const size_t step = groups ? 128 : std::max<size_t>(1, x.size());
  std::vector<double> out;
  for (size_t begin = 0; begin < x.size(); begin += step) {
    const size_t end = std::min(x.size(), begin + step);
    const double scale = format.scales == InputFormat::kStatic
                             ? at(w.input_scale, expert, 0)
                             : scale_of_row(x, begin, end, groups ? 1e-4f : 0, format);
    for (size_t i = begin; i < end; ++i) out.push_back(rounded_to(x[i], scale, format.dtype));
  }
  return out;
}

// K products and partial sums are rounded once each, and so are the scales of weights and
// activations, their product with a sum, s * z, and the bias: at most K + 8 roundings. What tensor
// cores cut off sums of eight-bit floats comes on top; where scales are of whole rows, a sum may
// stay there to its end.
Approx quantized_product(const std::vector<double>& x, const Linear& w, int64_t expert, int64_t out,
                         bool device) {
  const bool float8 = w.format.input && w.format.input->dtype == kF8;
  double sum = w.bias ? at(w.bias, out) : 0, size = std::abs(sum);
  std::vector<double> products;
  for (size_t i = 0; i < x.size(); ++i) {
    const Entry entry = weight_entry(w, expert, out, static_cast<int64_t>(i));
    sum += x[i] * entry.value;
    size += std::abs(x[i]) * entry.size;
    products.push_back(x[i] * entry.value);
  }
  const double round = static_cast<double>(x.size() + 8) * kF32Round;
  const bool whole = float8 && w.format.input->scales == InputFormat::kToken;
  const size_t chain = whole ? std::max<size_t>(32, (x.size() + 31) / 32 * 32) : 128;
  return {sum, size * round + (device && float8 ? cut_by_tensor_cores(products, chain) : 0)};
}

Approx gated_output(Approx gate, Approx up) {
  for (Approx* sum : {&gate, &up}) sum->bound += kBf16Round * (std::abs(sum->value) + sum->bound);
  const double on = gate.value / (1 + std::exp(-gate.value));
  // No activation is steeper than 1.13.
  const double on_bound = 1.13 * gate.bound + 8 * kF32Round * std::abs(gate.value);
  return {on * up.value, on_bound * (std::abs(up.value) + up.bound) + std::abs(on) * up.bound};
}

std::vector<double> row_of(const Tensor& x, int64_t row) {
  std::vector<double> out;
  for (int64_t i = 0; i < x.cols(); ++i) out.push_back(at(x, row, i));
  return out;
}

}  // namespace skiff::suite
