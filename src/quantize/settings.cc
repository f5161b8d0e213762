#include "quantize/settings.h"

#include <algorithm>

#include "base/load_error.h"
#include "weights/name_list.h"

namespace skiff::quantize {
namespace {

constexpr int kGroup = 1;  // in the table: the group size

constexpr WeightFormat kFour{.dtype = DType::kI4,
                             .block_out = 1,
                             .block_in = kGroup,
                             .scale = DType::kBF16,
                             .zero = {},
                             .input = {}};
constexpr WeightFormat kEight{.dtype = DType::kI8,
                              .block_out = 1,
                              .block_in = 0,
                              .scale = DType::kBF16,
                              .zero = {},
                              .input = {}};

constexpr WeightFormat with_input(WeightFormat format, InputFormat input) {
  format.input = input;
  return format;
}

constexpr InputFormat kInt8Token{.dtype = DType::kI8, .scales = InputFormat::kToken};
constexpr InputFormat kFloat8Token{.dtype = DType::kF8E4M3, .scales = InputFormat::kToken};
constexpr InputFormat kFloat8Groups{.dtype = DType::kF8E4M3, .scales = InputFormat::kGroups};
constexpr WeightFormat kFloat8{.dtype = DType::kF8E4M3,
                               .block_out = 1,
                               .block_in = 0,
                               .scale = DType::kBF16,
                               .zero = {},
                               .input = kFloat8Token};
constexpr WeightFormat kFloat8Block{.dtype = DType::kF8E4M3,
                                    .block_out = 128,
                                    .block_in = 128,
                                    .scale = DType::kBF16,
                                    .zero = {},
                                    .input = kFloat8Groups};
constexpr std::string_view kPacked = "compressed-tensors";

constexpr Target kTargets[] = {
    {"w4a16", Method::kNearest, kFour, kPacked, true, false},
    {"gptq", Method::kGptq, kFour, "gptq", true, false},
    {"awq", Method::kAwq, kFour, "awq", true, true},
    {"w8a16", Method::kNearest, kEight, kPacked},
    {"a8w8", Method::kSmooth, with_input(kEight, kInt8Token), kPacked},
    {"w4a8", Method::kSmooth, with_input(kFour, kInt8Token), kPacked},
    {"fp8", Method::kNearest, kFloat8, kPacked},
    {"fp8-block", Method::kNearest, kFloat8Block, kPacked},
};

template <class Table>
std::vector<std::string_view> names_of(const Table& table) {
  std::vector<std::string_view> names;
  for (const auto& row : table) names.push_back(row.name);
  return names;
}

model::NamePattern pattern_of(const std::string& text) {
  if (text.starts_with("re:")) return {model::PatternKind::kRegex, text.substr(3), "--ignore"};
  return {model::PatternKind::kName, text, "--ignore"};
}

// GPTQ's rounding takes more off the divergence than AWQ's factors alone. Where activations are
// rounded as well it has not proved better (docs/quantization.md).
bool compensates(Method method) { return method == Method::kGptq || method == Method::kAwq; }

void check_group(const Request& request) {
  if (request.group_size == -1) return;
  if (request.group_size < 16 || request.group_size % 16)
    fail_load("--group-size is {}; it must be -1 (one scale for each output) or a multiple of 16",
              request.group_size);
}

void check_four_bits(const Settings& settings, std::string_view layout) {
  const Target& target = *settings.target;
  if (!target.grouped())
    fail_load("--layout {} holds weights of 4 bits in groups; --to {} needs --layout {}", layout,
              target.name, kPacked);
  if (target.format.input)
    fail_load(
        "--layout {} holds weights alone; --to {}, which rounds activations, needs --layout {}",
        layout, target.name, kPacked);
  if (settings.kv)
    fail_load("--layout {} has no place for scales of the KV cache; use --layout {}", layout,
              kPacked);
}

void check_static_ints(const Settings& settings, const Request& request, std::string_view layout) {
  const WeightFormat& format = settings.target->format;
  if (format.dtype != DType::kI8 || !format.input)
    fail_load(
        "--layout {} holds 8-bit integers with rounded activations: use --to a8w8, or for --to {} "
        "another layout",
        layout, settings.target->name);
  if (settings.kv && settings.kv != DType::kI8)
    fail_load(
        "--layout {} has a place for scales of an int8 KV cache alone: use --kv-cache-dtype "
        "int8",
        layout);
  if (settings.shift)
    fail_load("--layout {} has no place for the biases that --shift needs: use --layout {}", layout,
              kPacked);
  if (!request.ignore.empty())
    fail_load(
        "--layout {} has no place for layers that stay plain: leave out --ignore, or use "
        "--layout {}",
        layout, kPacked);
}

void check_layout(const Settings& settings, const Request& request) {
  const std::string_view layout = settings.layout->name;
  if (settings.layout->holds == Layout::kFourBits) check_four_bits(settings, layout);
  if (settings.layout->holds == Layout::kStaticInts) check_static_ints(settings, request, layout);
}

}  // namespace

std::span<const Target> targets() { return kTargets; }

bool Settings::ignored(std::string_view module) const {
  return std::ranges::any_of(ignore, [&](const auto& pattern) { return pattern.matches(module); });
}

WeightFormat Settings::format_for(int64_t in) const {
  WeightFormat own = format;
  const bool row_groups = own.block_out == 1 && own.block_in > 0;
  if (row_groups && in % own.block_in) own.block_in = 0;
  return own;
}

Settings settle(const Request& request) {
  const auto* target = std::ranges::find(kTargets, request.to, &Target::name);
  if (target == std::end(kTargets))
    fail_load("--to {}: there is no such format; choose from {}",
              request.to.empty() ? "is missing" : request.to, name_list(names_of(kTargets)));
  const std::string layout = request.layout.empty() ? std::string(target->layout) : request.layout;
  Settings settings{.target = target,
                    .layout = find_layout(layout),
                    .format = target->format,
                    .ignore = {},
                    .clip = request.clip,
                    .compensate = request.compensate.value_or(compensates(target->method)),
                    .shift = request.shift,
                    .gptq = request.gptq,
                    .min_tokens = request.min_tokens,
                    .kv = request.kv,
                    .threads = request.threads,
                    .version = request.version};
  if (!settings.layout)
    fail_load("--layout {}: there is no such layout; choose from {}", layout,
              name_list(names_of(layouts())));
  check_layout(settings, request);
  if (settings.shift && target->method != Method::kSmooth)
    fail_load("--shift is for rounded activations that are smoothed: use --to a8w8 or w4a8");
  if (settings.compensate && !target->calibrated())
    fail_load(
        "--rounding gptq needs calibration, which --to {} has not; use --to gptq, awq, a8w8 or "
        "w4a8",
        target->name);
  settings.format.scale = settings.layout->scale;
  if (settings.layout->holds == Layout::kStaticInts)
    settings.format.input->scales = InputFormat::kStatic;
  if (target->grouped()) {
    check_group(request);
    settings.format.block_in = request.group_size == -1 ? 0 : request.group_size;
  }
  const bool zeros = request.symmetric ? !*request.symmetric : target->has_zeros;
  if (zeros && !target->may_have_zeros)
    fail_load("--symmetric false does not go with --to {}: it has no zero points", target->name);
  if (zeros) {
    settings.format.dtype = DType::kU4;
    settings.format.zero = DType::kU8;
  }
  for (const std::string& text : request.ignore) settings.ignore.push_back(pattern_of(text));
  return settings;
}

void check_layer(const Settings& settings, const LayerMap& map) {
  for (const LinearSlot& linear : map.linears) {
    size_t rounded = 0;
    for (const Piece& piece : linear.pieces) {
      const Unit& unit = map.units[piece.unit];
      if (settings.ignored(unit.name)) continue;
      ++rounded;
      settings.layout->check(unit.name, unit.out, unit.in, settings.format_for(unit.in),
                             settings.format);
    }
    if (settings.format.input && rounded > 0 && rounded < linear.pieces.size())
      fail_load(
          "--ignore names a part of {}, whose parts share their rounded activations: name "
          "all of them or none",
          model::describe_slot(linear.slot));
  }
}

}  // namespace skiff::quantize
