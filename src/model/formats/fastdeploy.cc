// FastDeploy's own description, by names such as "wint8": of weights that it has quantized offline,
// in the order of tensor cores or, where "is_permuted" is false, in Paddle's layout [in, out]; or
// of what should be done to plain ones while they are loaded.
#include <algorithm>

#include "base/log.h"
#include "model/family.h"
#include "model/formats/ccq.h"
#include "model/formats/eight_bits.h"
#include "model/formats/fastdeploy_w4a8.h"
#include "model/formats/paddle_tiles.h"

namespace skiff::model {
namespace {

// Returns whether the checkpoint holds quantized weights, as FastDeploy decides it, but for experts
// in "w4a8", which it never makes while it loads.
bool is_stored_quantized(const Fields& fields) {
  const bool silent = !fields.has("kv_cache_quant_type");
  return fields.get("is_quantized", fields.get("is_moe_quantized", silent));
}

std::vector<std::string> names_of(const Fields& fields) {
  std::vector<std::string> names;
  for (const std::string_view key : {"quantization", "dense_quant_type", "moe_quant_type"})
    if (const auto name = fields.get<std::string>(key, ""); !name.empty() && name != "mix_quant")
      names.push_back(name);
  return names;
}

// The names of what is stored for experts and for all else.
struct Names {
  std::string dense, experts;
  explicit Names(const Fields& fields) {
    const auto general = fields.get<std::string>("quantization", "");
    const bool two_bits = general == "wint2";
    dense = fields.get<std::string>("dense_quant_type", two_bits ? "wint8" : general);
    experts = fields.get<std::string>("moe_quant_type", two_bits ? "w4w2" : general);
  }
};

struct Stored {
  std::string_view name;
  StoredFormat (*format)();
};
constexpr Stored kInTiles[] = {{"wint8", paddle_tiles_8},
                               {"weight_only_int8", paddle_tiles_8},
                               {"wint4", paddle_tiles_4},
                               {"weight_only_int4", paddle_tiles_4}};

StoredFormat in_tiles(const Fields& fields, const std::string& name) {
  const auto* found = std::ranges::find(kInTiles, name, &Stored::name);
  if (found == std::end(kInTiles))
    fail_load(
        "{}: weights that FastDeploy has quantized to {} are not supported, only wint8, wint4, "
        "wint2 and experts in w4a8 are: use the bf16 checkpoint with --quantization",
        fields.where(), escaped(name, 60));
  return found->format();
}

size_t add(Quantization& made, StoredFormat format) {
  made.formats.push_back(std::move(format));
  return made.formats.size() - 1;
}

constexpr std::string_view kExperts = ".mlp.experts.";
constexpr std::string_view kW4a8 = "w4a8";

void add_rule(Quantization& made, const Fields& fields, std::string part, size_t format) {
  made.rules.push_back(
      {NamePattern(PatternKind::kSubstring, std::move(part), fields.where()), {format}});
}

// Under "w4w2" experts have two bits behind the layers in which they have four.
void add_experts_of_two_bits(Quantization& made, const Fields& fields) {
  int last = 6;
  std::string four = "wint4";
  if (fields.has("moe_quant_config")) {
    const Fields moe = fields.child("moe_quant_config");
    if (moe.has("moe_w4_quant_config")) {
      const Fields first = moe.child("moe_w4_quant_config");
      four = first.get("quant_type", four);
      last = get_int(first, "quant_end_layer", last, -1, kMaxLayers - 1);
    }
    if (moe.has("moe_w2_quant_config")) {
      const Fields rest = moe.child("moe_w2_quant_config");
      const int group = get_int(rest, "quant_group_size", 64, 0, kMaxWidth);
      if (rest.get<std::string>("quant_type", "wint2") != "wint2" || (group != 0 && group != 64))
        fail_load("{}: only \"quant_type\" wint2 with \"quant_group_size\" 64 is supported",
                  rest.where());
    }
  }
  const size_t format = last < 0 ? 0 : add(made, in_tiles(fields, four));
  for (int layer = 0; layer <= last; ++layer)
    add_rule(made, fields, fmt::format(".layers.{}{}", layer, kExperts), format);
  add_rule(made, fields, std::string(kExperts), add(made, ccq_format()));
}

// FastDeploy loads these as they are into the buffers of its kernels.
Quantization read_tiles(const Fields& fields) {
  const Names names(fields);
  Quantization made;
  if (names.experts == "w4w2" || names.experts == "wint2")
    add_experts_of_two_bits(made, fields);
  else if (names.experts != names.dense)
    add_rule(made, fields, std::string(kExperts), add(made, in_tiles(fields, names.experts)));
  made.about = made.formats.empty() ? "" : made.formats.back().name + "; ";
  const size_t rest = add(made, in_tiles(fields, names.dense));
  made.rules.push_back({NamePattern(PatternKind::kAll, "", fields.where()), {rest}});
  made.about += made.formats[rest].name;
  return made;
}

Quantization read_plain_order(const Fields& fields) {
  for (const std::string& name : names_of(fields))
    if (name != "wint8" && name != "weight_only_int8")
      fail_load(
          "{}: {} with \"is_permuted\" false is not supported, only wint8 is: use the bf16 "
          "checkpoint with --quantization",
          fields.where(), escaped(name, 60));
  StoredFormat format = eight_bit_format({.name = "FastDeploy wint8, a scale for each output",
                                          .dtype = DType::kI8,
                                          .scale_suffixes = {".weight_scale"},
                                          .flat = true});
  format.tensors[0].suffixes = {".quant_weight"};
  format.tensors[1].suffixes.push_back(".quant_scale");
  Quantization made;
  made.about = format.name;
  made.formats = {std::move(format)};
  made.rules.push_back({NamePattern(PatternKind::kAll, "", fields.where()), {0}});
  return made;
}

// Returns how many inputs are rotated together. FastDeploy has kernels for four sizes.
int read_rotation(const Fields& fields) {
  constexpr std::string_view kKey = "hadamard_block_size";
  constexpr int kSizes[] = {128, 256, 512, 1024};
  const int block = get_int(fields, kKey, 128, 1, kMaxWidth);
  if (std::ranges::find(kSizes, block) == std::end(kSizes))
    fail_load("{}: \"{}\" is {}; known: 128, 256, 512, 1024", fields.where(), kKey, block);
  return block;
}

// Experts have four bits, and scales of their inputs, which are rotated in front of down_proj.
// Other layers are in tiles, however experts are ordered, or plain where nothing is said to be
// stored quantized.
Quantization read_w4a8(const Fields& fields, const Names& names) {
  const bool stored = is_stored_quantized(fields);
  const bool permuted = stored && fields.get("is_permuted", true);
  Quantization made;
  const size_t down = add(made, fastdeploy_w4a8_rotated(permuted, read_rotation(fields)));
  made.rules.push_back(
      {NamePattern(PatternKind::kWildcard, "*.mlp.experts.*.down_proj", fields.where()), {down}});
  const size_t experts = add(made, fastdeploy_w4a8(permuted));
  add_rule(made, fields, std::string(kExperts), experts);
  made.about = made.formats[experts].name;
  if (!stored || names.dense.empty() || names.dense == kW4a8) return made;
  const size_t rest = add(made, in_tiles(fields, names.dense));
  made.rules.push_back({NamePattern(PatternKind::kAll, "", fields.where()), {rest}});
  made.about += "; " + made.formats[rest].name;
  return made;
}

}  // namespace

bool is_fastdeploy(const Fields& fields) {
  return !names_of(fields).empty() && !fields.has("quant_method");
}

Quantization read_fastdeploy(const Fields& fields) {
  if (const Names names(fields); names.experts == kW4a8) return read_w4a8(fields, names);
  if (is_stored_quantized(fields))
    return fields.get("is_permuted", true) ? read_tiles(fields) : read_plain_order(fields);
  // A description may be of the KV cache alone.
  for (const std::string& name : names_of(fields))
    spdlog::info(
        "{} asks for {} at load, which Skiff does where the command line does: "
        "--quantization {}",
        fields.where(), name, name);
  return {};
}

}  // namespace skiff::model
