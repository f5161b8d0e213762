#include "model/scale_tables.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include <fmt/format.h>

#include "base/json.h"
#include "base/load_error.h"
#include "base/log.h"

namespace skiff::model {
namespace {

namespace fs = std::filesystem;

// A model of 100 layers has some ten million scales, of at most 25 bytes each.
constexpr JsonLimits kLimits = {.max_bytes = size_t{1} << 30, .max_depth = 4};

// What lies beyond float32 becomes infinite.
float narrowed(double x) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return std::abs(x) <= kMost ? static_cast<float>(x) : std::numeric_limits<float>::infinity();
}

std::vector<float> numbers_of(const Json& value, const std::string& where) {
  std::vector<float> numbers;
  const auto add = [&](const Json& number) {
    if (!number.is_number())
      fail_load("{}: {} is no number", where, escaped(number.dump().substr(0, 40)));
    numbers.push_back(narrowed(number.get<double>()));
  };
  if (!value.is_array()) {
    add(value);
    return numbers;
  }
  for (const Json& item : value) add(item);
  return numbers;
}

// "act_scales.json" becomes "act_scales_0.json".
std::string of_first_rank(std::string_view file) {
  const std::string_view stem = file.substr(0, file.rfind('.'));
  return fmt::format("{}_0{}", stem, file.substr(stem.size()));
}

}  // namespace

ScaleTable::ScaleTable(const std::string& dir, std::string_view file)
    : path_((fs::path(dir) / file).string()) {
  if (!fs::exists(path_)) {
    const std::string rank = of_first_rank(file);
    absent_ =
        fs::exists(fs::path(dir) / rank)
            ? fmt::format("it is missing; {} is of one rank of several: quantize on one card", rank)
            : "it is missing: copy it from where the checkpoint was quantized";
    return;
  }
  const Json json = read_json_file(path_, kLimits);
  if (!json.is_object()) fail_load("{}: no JSON object", path_);
  for (const auto& [key, value] : json.items())
    numbers_.emplace(key, numbers_of(value, fmt::format("{}: \"{}\"", path_, escaped(key))));
}

const std::vector<float>& ScaleTable::need(const std::string& name, int64_t count) const {
  if (!absent_.empty()) fail_load("{}: {}", path_, absent_);
  const auto found = numbers_.find(name);
  if (found == numbers_.end())
    fail_load(
        "{}: no \"{}\"; layers that were left out when the model was quantized are not supported: "
        "quantize all of them, or use the bf16 checkpoint with --quantization a8w8",
        path_, escaped(name));
  const std::vector<float>& numbers = found->second;
  if (std::ssize(numbers) != count)
    fail_load("{}: \"{}\" has {} numbers, config.json asks for {}", path_, escaped(name),
              numbers.size(), count);
  for (size_t i = 0; i < numbers.size(); ++i)
    if (!std::isfinite(numbers[i]) || numbers[i] < 0)
      fail_load("{}: \"{}\": number {} is {}; no largest magnitude is", path_, escaped(name), i,
                numbers[i]);
  return numbers;
}

}  // namespace skiff::model
