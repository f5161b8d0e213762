// compressed-tensors, the format of llm-compressor: groups of layers, each with a scheme for its
// weights and activations.
#include <optional>

#include "base/log.h"
#include "model/family.h"
#include "model/formats/eight_bits.h"
#include "model/formats/fp4.h"
#include "model/formats/packed_columns.h"
#include "model/quantization.h"
#include "model/stored_numbers.h"
#include "weights/name_list.h"

namespace skiff::model {
namespace {

constexpr int kMaxBlock = 1 << 18, kMaxBits = 64;

std::vector<int64_t> words_along_inputs(const ModuleShape& m, const StoredFormat& f) {
  return {m.out, (m.in * f.bits + 31) / 32};
}
std::vector<int64_t> words_along_outputs(const ModuleShape& m, const StoredFormat& f) {
  return {(m.out * f.bits + 31) / 32, blocks_in(m.in, f.values.block_in)};
}
std::vector<int64_t> shape_of_shape(const ModuleShape&, const StoredFormat&) { return {2}; }

// Elements and zero points are stored plus 8, or plus 128. Those of four bits with a zero point
// stay so.
int offset_of(const StoredFormat& f) {
  return f.values.dtype == DType::kU4 ? 0 : 1 << (f.bits - 1);
}

// The package creates the groups of columns as -1, and a layer whose calibration sets none keeps
// them: its columns are in the order in which they are stored.
bool order_was_not_set(const StoredModule& m) {
  const StoredTensor* order = m.of(Role::kOrder);
  for (int64_t i = 0; order && i < m.shape.in; ++i)
    if (stored<int32_t>(*order, i) != -1) return false;
  return true;
}

void settle(StoredModule& m) {
  if (const StoredTensor* shape = m.of(Role::kNote))
    if (stored_integer(*shape, 0) != m.shape.out || stored_integer(*shape, 1) != m.shape.in)
      fail_load("tensor \"{}\" says {} x {}, config.json asks for {} x {}",
                escaped(shape->entry->name), stored_integer(*shape, 0), stored_integer(*shape, 1),
                m.shape.out, m.shape.in);
  if (!order_was_not_set(m)) settle_order(m, m.format->values.block_in);
}

void elements(const StoredModule& m, const Region& region, std::byte* to) {
  const StoredFormat& f = *m.format;
  const StoredTensor& words = *m.of(Role::kWeight);
  const int64_t per = 32 / f.bits, pitch = words.entry->shape[1];
  for (int64_t r = 0; r < region.rows; ++r)
    for (int64_t c = 0; c < region.cols; ++c) {
      const int64_t k = m.column(region.col + c);
      const unsigned e = packed(words, (region.row + r) * pitch + k / per, k % per, f.bits);
      to[r * region.cols + c] = static_cast<std::byte>(static_cast<int>(e) - offset_of(f));
    }
}

void zeros(const StoredModule& m, const BlockRows& rows, float* to) {
  const StoredFormat& f = *m.format;
  const StoredTensor& words = *m.of(Role::kZero);
  const int64_t per = 32 / f.bits, groups = words.entry->shape[1];
  for (int64_t n = rows.first; n < rows.first + rows.count; ++n)
    for (int64_t g = 0; g < groups; ++g) {
      const unsigned z = packed(words, n / per * groups + g, n % per, f.bits);
      *to++ = static_cast<float>(static_cast<int>(z) - offset_of(f));
    }
}

constexpr Unpacking kSymmetric{.elements = elements, .scales = stored_scales, .settle = settle};
constexpr Unpacking kAsymmetric{
    .elements = elements, .scales = stored_scales, .zeros = zeros, .settle = settle};

StoredFormat packed_format(int bits, int group, bool symmetric) {
  StoredFormat f{.name = fmt::format("packed {} bits, {}{}", bits,
                                     group ? fmt::format("groups of {}", group) : "rows",
                                     symmetric ? "" : ", zero points"),
                 .tensors = {{.role = Role::kWeight,
                              .suffixes = {".weight_packed"},
                              .dtypes = {"I32"},
                              .shape = words_along_inputs},
                             {.role = Role::kScale,
                              .suffixes = {".weight_scale"},
                              .dtypes = {"BF16", "F16", "F32"},
                              .shape = shape_of_blocks},
                             {.role = Role::kNote,
                              .suffixes = {".weight_shape"},
                              .dtypes = {"I64", "I32"},
                              .shape = shape_of_shape,
                              .optional = true},
                             {.role = Role::kOrder,
                              .suffixes = {".weight_g_idx"},
                              .dtypes = {"I32"},
                              .shape = shape_of_inputs,
                              .optional = true},
                             bias_rule()},
                 .values = {.dtype = bits == 8   ? DType::kI8
                                     : symmetric ? DType::kI4
                                                 : DType::kU4,
                            .block_out = 1,
                            .block_in = group,
                            .scale = DType::kBF16},
                 .unpacking = symmetric ? &kSymmetric : &kAsymmetric,
                 .bits = bits,
                 .symmetric = symmetric};
  if (symmetric) return f;
  f.values.zero = bits == 8 ? DType::kI8 : DType::kU8;
  f.tensors.push_back({.role = Role::kZero,
                       .suffixes = {".weight_zero_point"},
                       .dtypes = {"I32"},
                       .shape = words_along_outputs});
  return f;
}

// One entry of "config_groups".
class Group {
 public:
  Group(const Fields& group, const std::string& whole_format)
      : group_(group), weights_(group.child("weights")) {
    if (!group.has("weights")) fail_load("{}: missing key \"weights\"", group.where());
    const auto stated = group.get<std::string>("format", whole_format);
    format_ = stated == "mixed-precision" ? "" : stated;
    bits_ = need_int(weights_, "num_bits", 1, kMaxBits);
    type_ = weights_.get<std::string>("type", "int");
    symmetric_ = weights_.get("symmetric", true);
    group_size_ = get_int(weights_, "group_size", 0, -1, kMaxBlock);
    strategy_ = weights_.get<std::string>("strategy", group_size_ > 0 ? "group" : "tensor");
    if (weights_.get("dynamic", false))
      fail_load("{}: weights with \"dynamic\" scales are not supported", group.where());
    if (group.has("output_activations"))
      fail_load("{}: \"output_activations\" are not supported; quantize weights and inputs only",
                group.where());
  }

  StoredFormat format() const {
    if (format_ == "pack-quantized") return packed();
    if (format_ == "mxfp4-pack-quantized") {
      check("type", type_, "float");
      return mxfp4_format();
    }
    if (format_ == "nvfp4-pack-quantized") {
      check("type", type_, "float");
      return nvfp4_format({.name = "NVFP4",
                           .weight = ".weight_packed",
                           .whole = ".weight_global_scale",
                           .divides = true});
    }
    if (format_ == "int-quantized" || format_ == "float-quantized" || format_ == "naive-quantized")
      return bytes();
    fail_load(
        "{}: \"format\" {} is not supported; pack-quantized, int-quantized, float-quantized, "
        "naive-quantized, mxfp4-pack-quantized and nvfp4-pack-quantized are",
        group_.where(), escaped(format_));
  }

 private:
  void check(std::string_view key, const std::string& value, std::string_view want) const {
    if (value != want)
      fail_load("{}: \"{}\" is {}, which does not go with \"format\" {}", group_.where(), key,
                escaped(value), format_);
  }
  StoredFormat packed() const {
    check("type", type_, "int");
    if (bits_ != 4 && bits_ != 8)
      fail_load("{}: \"num_bits\" is {}; 4 and 8 are supported", group_.where(), bits_);
    if (group_.has("input_activations"))
      fail_load(
          "{}: \"input_activations\" with packed weights are not supported; use a weight-only "
          "scheme "
          "such as W4A16",
          group_.where());
    if (strategy_ == "channel") return packed_format(bits_, 0, symmetric_);
    if (strategy_ == "group" && group_size_ > 0 && group_size_ <= kMaxBlock)
      return packed_format(bits_, group_size_, symmetric_);
    fail_strategy();
  }
  StoredFormat bytes() const {
    const bool four = bits_ == 4 && type_ == "int" && symmetric_;
    if (bits_ != 8 && !four)
      fail_load("{}: \"num_bits\" is {}, which does not go with \"format\" {}", group_.where(),
                bits_, format_);
    const bool floats = type_ == "float";
    EightBits what{.dtype = floats ? DType::kF8E4M3 : DType::kI8,
                   .input = input(floats ? DType::kF8E4M3 : DType::kI8),
                   .four = four,
                   .zero = !symmetric_ && !floats};
    if (strategy_ == "tensor") {
      what.scales = ScaleOf::kTensor;
    } else if (strategy_ == "block") {
      what.scales = ScaleOf::kBlock;
      std::tie(what.block_out, what.block_in) = block();
    } else if (strategy_ == "group" && group_size_ > 0 && group_size_ <= kMaxBlock) {
      what.scales = ScaleOf::kBlock;
      what.block_out = 1;
      what.block_in = group_size_;
    } else if (strategy_ != "channel") {
      fail_strategy();
    }
    what.name = fmt::format("{}, a scale for each {}",
                            floats ? "fp8"
                            : four ? "int4"
                                   : "int8",
                            strategy_);
    return eight_bit_format(what);
  }
  std::pair<int, int> block() const {
    const auto found = weights_.json().find("block_structure");
    const bool pair = found != weights_.json().end() && found->is_array() && found->size() == 2;
    const auto out = pair ? int_in((*found)[0], 1, kMaxBlock) : std::nullopt;
    const auto in = pair ? int_in((*found)[1], 1, kMaxBlock) : std::nullopt;
    if (!out || !in)
      fail_load("{}: \"block_structure\" must be two sizes, as [128, 128]", weights_.where());
    return {*out, *in};
  }
  // One scale for a batch, found as it comes, would make results depend on other requests: each row
  // has its own instead.
  std::optional<InputFormat> input(DType elements) const {
    if (!group_.has("input_activations")) return std::nullopt;
    const Fields in = group_.child("input_activations");
    if (need_int(in, "num_bits", 1, kMaxBits) != 8 ||
        in.get<std::string>("type", "int") != (elements == DType::kI8 ? "int" : "float"))
      fail_load("{}: activations must have the type and the 8 bits of the weights", in.where());
    if (!in.get("symmetric", true))
      fail_load("{}: activations with zero points are not supported", in.where());
    const auto strategy = in.get<std::string>("strategy", "tensor");
    const Json dynamic = in.has("dynamic") ? in.json().at("dynamic") : Json(false);
    if (dynamic == Json(false) && strategy == "tensor")
      return InputFormat{.dtype = elements, .scales = InputFormat::kStatic};
    if (dynamic == Json(true) && (strategy == "token" || strategy == "tensor"))
      return InputFormat{.dtype = elements, .scales = InputFormat::kToken};
    if (dynamic == Json(true) && strategy == "group" &&
        get_int(in, "group_size", 0, -1, kMaxBlock) == 128)
      return InputFormat{.dtype = elements, .scales = InputFormat::kGroups};
    fail_load("{}: \"strategy\" {} with \"dynamic\" {} is not supported", in.where(),
              escaped(strategy), dynamic.dump());
  }
  [[noreturn]] void fail_strategy() const {
    fail_load("{}: \"strategy\" {} with \"group_size\" {} is not supported", group_.where(),
              escaped(strategy_), group_size_);
  }

  Fields group_, weights_;
  std::string format_, type_, strategy_;
  int bits_ = 0, group_size_ = 0;
  bool symmetric_ = true;
};

// "re:..." is a regular expression; "Linear" the class of every linear layer; else a name.
NamePattern pattern_of(const std::string& text, const std::string& where) {
  if (text.starts_with("re:")) return {PatternKind::kRegex, text.substr(3), where};
  if (text == "Linear") return {PatternKind::kAll, "", where};
  return {PatternKind::kName, text, where};
}

void refuse_extras(const Fields& fields) {
  for (const std::string_view key : {"sparsity_config", "transform_config"}) {
    if (!fields.has(key)) continue;
    const Fields extra = fields.child(key);
    if (extra.json().empty() || extra.get<std::string>("format", "") == "dense") continue;
    fail_load("{}: \"{}\" is not supported; save the checkpoint without it", fields.where(), key);
  }
  const auto status = fields.get<std::string>("quantization_status", "compressed");
  // Some writers leave the status of the model in memory, frozen, in files of compressed tensors.
  // Which of the two they have is seen from the tensors: scales beside plain weights are refused.
  if (status != "compressed" && status != "frozen")
    fail_load("{}: \"quantization_status\" is {}; save the checkpoint compressed", fields.where(),
              escaped(status));
}

// What the scales self_attn.k_scale and v_scale are for.
void read_kv_scheme(const Fields& fields, Quantization& made) {
  if (!fields.has("kv_cache_scheme")) return;
  const Fields scheme = fields.child("kv_cache_scheme");
  const auto type = scheme.get<std::string>("type", "float");
  made.kv_elements = type == "int" ? DType::kI8 : DType::kF8E4M3;
  const int bits = get_int(scheme, "num_bits", 8, 1, kMaxBits);
  const auto strategy = scheme.get<std::string>("strategy", "tensor");
  if (bits != 8)
    made.kv_refusal = fmt::format("\"kv_cache_scheme\" of {} bits is not supported", bits);
  else if (!scheme.get("symmetric", true))
    made.kv_refusal = "\"kv_cache_scheme\" with zero points is not supported";
  else if (strategy != "tensor" && strategy != "attn_head")
    made.kv_refusal = fmt::format("\"kv_cache_scheme\" with the strategy {} is not supported",
                                  escaped(strategy, 60));
}

}  // namespace

Quantization read_compressed_tensors(const Fields& fields) {
  refuse_extras(fields);
  const auto format = fields.get<std::string>("format", "");
  Quantization made;
  for (const std::string& name : fields.get<std::vector<std::string>>("ignore", {}))
    made.rules.push_back({pattern_of(name, fields.where() + ": ignore"), {}});
  const Fields groups = fields.child("config_groups");
  std::vector<LayerRule> targets;
  for (const auto& item : groups.json().items()) {
    const Fields group = groups.child(item.key());
    made.formats.push_back(Group(group, format).format());
    for (const std::string& target : group.need<std::vector<std::string>>("targets"))
      targets.push_back(
          {pattern_of(target, group.where() + ": targets"), {made.formats.size() - 1}});
  }
  // A name counts before a regular expression, and that before a class.
  for (const PatternKind kind : {PatternKind::kName, PatternKind::kRegex, PatternKind::kAll})
    for (const LayerRule& rule : targets)
      if (rule.pattern.kind() == kind) made.rules.push_back(rule);
  // Weights of four-bit floats are multiplied by activations as they are.
  made.unused = {".input_global_scale"};
  read_kv_scheme(fields, made);
  std::vector<std::string> names;
  names.reserve(made.formats.size());
  for (const StoredFormat& f : made.formats) names.push_back(f.name);
  made.about = name_list(names, 4);
  return made;
}

}  // namespace skiff::model
