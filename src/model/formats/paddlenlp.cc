// What PaddleNLP's run_quantization writes as "a8w8": whole numbers from -128 to 127 in tensors
// [in, out] of any dtype, and their scales in JSON files beside them (model/scale_tables.h). The
// largest magnitude w of an output in weight_scales.json and a of a layer's inputs in
// act_scales.json stand for the scales w / 127 and a / 127: y = q x r (w / 127) (a / 127), where r
// is the input divided by a / 127 and rounded to nearest even. Queries, keys and values share the
// a of the queries, gate and up that of the gate.
#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>

#include "base/log.h"
#include "model/family.h"
#include "model/quantization.h"
#include "model/scale_tables.h"
#include "model/stored_numbers.h"
#include "tensor/convert.h"

namespace skiff::model {
namespace {

constexpr float kMostCode = 127;
constexpr std::string_view kWeight = ".weight";
// Where layers behind no norm have factors of their inputs, the quantized layer lies within another
// one.
constexpr std::string_view kWithin = ".layer";

template <class T>
std::byte code(const StoredTensor& tensor, int64_t index) {
  const T raw = stored<T>(tensor, index);
  if constexpr (std::is_same_v<T, int8_t>) {
    return static_cast<std::byte>(raw);
  } else {
    const float x = to_float(raw);
    if (!(x >= -128 && x <= 127) || x != std::nearbyint(x))
      fail_load(
          "tensor \"{}\": element {} is {}; 8-bit integers must be whole numbers from -128 "
          "to 127",
          escaped(tensor.entry->name), index, x);
    return static_cast<std::byte>(static_cast<int8_t>(x));
  }
}

// Lines of the file stay in the cache while their outputs are put in rows.
template <class T>
void codes_as(const StoredModule& m, const Region& region, std::byte* to) {
  constexpr int64_t kBand = 64;
  const StoredTensor& tensor = *m.of(Role::kWeight);
  for (int64_t first = 0; first < region.rows; first += kBand) {
    const int64_t end = std::min(first + kBand, region.rows);
    for (int64_t c = 0; c < region.cols; ++c)
      for (int64_t r = first; r < end; ++r) {
        const int64_t out = region.row + r, in = region.col + c;
        const int64_t at = m.shape.transposed ? in * m.shape.out + out : out * m.shape.in + in;
        to[r * region.cols + c] = code<T>(tensor, at);
      }
  }
}

void codes(const StoredModule& m, const Region& region, std::byte* to) {
  const std::string& dtype = m.of(Role::kWeight)->entry->dtype;
  if (dtype == "I8") return codes_as<int8_t>(m, region, to);
  if (dtype == "BF16") return codes_as<BF16>(m, region, to);
  if (dtype == "F16") return codes_as<F16>(m, region, to);
  codes_as<float>(m, region, to);
}

// StoredModule::numbers: the scales of the outputs, then the one of all inputs.
void scales(const StoredModule& m, const BlockRows& rows, float* to) {
  std::copy_n(m.numbers.begin() + rows.first, rows.count, to);
}
float input_scale(const StoredModule& m) { return m.numbers.back(); }

// Values, each rounded once, where inputs have factors.
void widened(const StoredModule& m, const Region& region, std::byte* to) {
  std::vector<std::byte> elements(static_cast<size_t>(region.rows * region.cols));
  codes(m, region, elements.data());
  const StoredTensor& factors = *m.of(Role::kInputFactor);
  std::vector<double> factor_of;
  for (int64_t c = region.col; c < region.col + region.cols; ++c)
    factor_of.push_back(stored_float(factors, c));
  for (int64_t r = 0; r < region.rows; ++r)
    for (int64_t c = 0; c < region.cols; ++c) {
      const double scale = m.numbers[static_cast<size_t>(region.row + r)];
      const double factor = factor_of[static_cast<size_t>(c)];
      const auto element = static_cast<int8_t>(elements[static_cast<size_t>(r * region.cols + c)]);
      const auto value = static_cast<float>(element * scale * factor);
      if (!std::isfinite(value))
        fail_load("tensor \"{}\": the factor of input {} is {}", escaped(factors.entry->name),
                  region.col + c, factor);
      if (scale == 0 && element != 0)
        fail_load("tensor \"{}\": the scale of output {} is 0, its elements are not",
                  escaped(m.of(Role::kWeight)->entry->name), region.row + r);
      std::memcpy(to + (r * region.cols + c) * 4, &value, sizeof value);
    }
}

// The layer whose inputs were looked at for this one.
std::string observed(std::string module) {
  constexpr std::string_view kPairs[][2] = {
      {".k_proj", ".q_proj"}, {".v_proj", ".q_proj"}, {".up_proj", ".gate_proj"}};
  for (const auto& [shared, first] : kPairs)
    if (module.ends_with(shared))
      return module.replace(module.size() - shared.size(), shared.size(), first);
  return module;
}

float largest_input(const ScaleTables& tables, const std::string& name) {
  const float largest = tables.inputs.need(name, 1)[0];
  if (largest == 0)
    fail_load(
        "act_scales.json: \"{}\" is 0: no inputs were seen; quantize with texts for all layers",
        escaped(name));
  return largest;
}

void settle(StoredModule& m) {
  const std::string& tensor = m.of(Role::kWeight)->entry->name;
  std::string name = tensor.substr(0, tensor.size() - kWeight.size());
  if (m.format->rule(Role::kInputFactor)) name += kWithin;
  const ScaleTables& tables = *m.format->beside;
  m.numbers = tables.weights.need(name + ".weight_quanter", m.shape.out);
  m.numbers.push_back(largest_input(tables, observed(name) + ".activation_quanter"));
  for (float& number : m.numbers) number /= kMostCode;
  const StoredTensor* shift = m.of(Role::kNote);
  for (int64_t i = 0; shift && i < m.shape.in; ++i)
    if (stored_float(*shift, i) != 0)
      fail_load(
          "tensor \"{}\" is not zero: shifted inputs are not supported; quantize with "
          "\"shift\" false",
          escaped(shift->entry->name));
}

constexpr Unpacking kCodes{
    .elements = codes, .scales = scales, .settle = settle, .input_scale = input_scale};
constexpr Unpacking kWidened{.elements = widened, .settle = settle};

StoredFormat a8w8(std::shared_ptr<const ScaleTables> tables) {
  return {.name = "PaddleNLP a8w8, a scale for each output, static activations",
          .tensors = {{.role = Role::kWeight,
                       .suffixes = {kWeight},
                       .dtypes = {"I8", "BF16", "F16", "F32"},
                       .shape = shape_of_matrix},
                      bias_rule()},
          .values = {.dtype = DType::kI8,
                     .block_out = 1,
                     .block_in = 0,
                     .scale = DType::kF32,
                     .input = InputFormat{.dtype = DType::kI8, .scales = InputFormat::kStatic}},
          .unpacking = &kCodes,
          .bits = 8,
          .alone = true,
          .beside = std::move(tables)};
}

StoredFormat a8w8_with_factors(std::shared_ptr<const ScaleTables> tables) {
  StoredFormat f = a8w8(std::move(tables));
  f.name = "PaddleNLP a8w8 with factors of inputs";
  for (const auto& [role, suffix] :
       {std::pair(Role::kInputFactor, ".smooth_weight"), {Role::kNote, ".shift_bias"}})
    f.tensors.push_back({.role = role,
                         .suffixes = {suffix},
                         .dtypes = {"F32", "BF16", "F16"},
                         .shape = shape_of_inputs});
  f.values = {.dtype = DType::kF32};
  f.unpacking = &kWidened;
  return f;
}

void add_rule(Quantization& made, const Fields& fields, const char* part, size_t format) {
  made.rules.push_back({NamePattern(PatternKind::kSubstring, part, fields.where()), {format}});
}

void check(const Fields& fields, const std::string& type) {
  if (type != "a8w8" && type != "A8W8" && type != "a8w8c8")
    fail_load(
        "{}: PaddleNLP's \"quant_type\" {} is not supported, only a8w8 and a8w8c8 are: use the "
        "bf16 checkpoint with --quantization",
        fields.where(), escaped(type, 60));
  if (fields.get("shift", false))
    fail_load(
        "{}: \"shift\" true is not supported, because it gives norms a bias; quantize with "
        "\"shift\" false",
        fields.where());
  if (const int ties = get_int(fields, "quant_round_type", 0, 0, 1); ties != 0)
    fail_load("{}: \"quant_round_type\" is {}; only 0, to nearest even, is supported",
              fields.where(), ties);
  const auto method = fields.get<std::string>("weight_quant_method", "abs_max_channel_wise");
  if (method != "abs_max_channel_wise")
    fail_load("{}: \"weight_quant_method\" is {}; only abs_max_channel_wise is supported",
              fields.where(), escaped(method, 60));
}

}  // namespace

bool is_paddlenlp(const Fields& fields) {
  return !fields.get<std::string>("quant_type", "").empty() && !fields.has("quant_method");
}

Quantization read_paddlenlp(const Fields& fields, const std::string& dir) {
  check(fields, fields.need<std::string>("quant_type"));
  const auto tables = std::make_shared<const ScaleTables>(dir);
  Quantization made;
  made.formats = {a8w8(tables)};
  made.about = made.formats[0].name;
  if (fields.get("shift_smooth_all_linears", false)) {
    made.formats.push_back(a8w8_with_factors(tables));
    for (const char* part : {".self_attn.o_proj", ".mlp.down_proj"})
      add_rule(made, fields, part, 1);
    made.about += "; with factors of inputs";
  }
  for (const char* part : {".self_attn.", ".mlp."}) add_rule(made, fields, part, 0);
  // The wrapped layer's copy of its weight, and the scales that the files have again.
  made.unused = {".layer.weight", "quanter._scales", "quanter._zero_point"};
  made.zeros = {".bias"};
  return made;
}

}  // namespace skiff::model
