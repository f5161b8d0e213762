// AutoRound (arXiv 2309.05516) in its own description of a model. The tensors are those of GPTQ in
// version 1 or of AWQ, as "packing_format" says, and other layers than most have entries in
// "extra_config".
#include "base/log.h"
#include "model/family.h"
#include "model/quantization.h"

namespace skiff::model {
namespace {

constexpr int kPlainBits = 16;

Quantization read_packing(const Fields& fields) {
  const auto packing = fields.get<std::string>("packing_format", "auto_round:auto_gptq");
  if (packing == "auto_round:auto_gptq" || packing == "auto_gptq") return read_gptq(fields);
  if (packing == "auto_round:auto_awq" || packing == "auto_awq") return read_awq(fields);
  fail_load(
      "{}: \"packing_format\" {} is not supported, only auto_round:auto_gptq and "
      "auto_round:auto_awq are: export the model in one of these",
      fields.where(), escaped(packing, 60));
}

int bits_of(const Fields& fields, std::string_view key, int fallback) {
  return get_int(fields, key, fallback, 1, 64);
}

// Activations stay as they are, and elements are integers.
void check_numbers(const Fields& fields) {
  if (const auto type = fields.get<std::string>("data_type", "int"); type != "int")
    fail_load("{}: \"data_type\" {} is not supported, only int is", fields.where(),
              escaped(type, 60));
  if (const int bits = bits_of(fields, "act_bits", kPlainBits); bits < kPlainBits)
    fail_load("{}: \"act_bits\" is {}; only activations of 16 bits and more are supported",
              fields.where(), bits);
}

// What an entry says must be what all layers have, unless it keeps its layer plain.
void check_override(const Fields& all, const Fields& layer) {
  check_numbers(layer);
  for (const std::string_view key : {"bits", "group_size", "sym"}) {
    if (!layer.has(key)) continue;
    const Json& own = layer.json().at(key);
    if (!all.has(key) || all.json().at(key) != own)
      fail_load("{}: \"{}\" is {}, an override of some layers; only those of 16 bits are supported",
                layer.where(), key, own.dump().substr(0, 40));
  }
}

// Names the layers that stay plain ahead of the rule for all others.
void read_overrides(const Fields& fields, Quantization& made) {
  const Fields extra = fields.child("extra_config");
  std::vector<LayerRule> plain;
  for (const auto& item : extra.json().items()) {
    const Fields layer(item.value(), fmt::format("{}: {}", extra.where(), escaped(item.key(), 80)));
    if (bits_of(layer, "bits", 1) >= kPlainBits)
      plain.push_back({NamePattern(PatternKind::kName, item.key(), extra.where()), {}});
    else
      check_override(fields, layer);
  }
  made.rules.insert(made.rules.begin(), plain.begin(), plain.end());
}

}  // namespace

Quantization read_auto_round(const Fields& fields) {
  check_numbers(fields);
  Quantization made = read_packing(fields);
  read_overrides(fields, made);
  return made;
}

}  // namespace skiff::model
