#include "model/kv_cache_dtype.h"

#include <algorithm>
#include <array>
#include <utility>

#include "arch/cost.h"

namespace skiff::model {
namespace {

using Name = std::pair<std::string_view, DType>;
constexpr auto kNames = std::to_array<Name>({{"float32", DType::kF32},
                                             {"bfloat16", DType::kBF16},
                                             {"int8", DType::kI8},
                                             {"fp8", DType::kF8E4M3},
                                             {"int4", DType::kU4},
                                             {"float8_e4m3fn", DType::kF8E4M3},
                                             {"fp8_e4m3", DType::kF8E4M3},
                                             {"block_wise_fp8", DType::kF8E4M3},
                                             {"int4_zp", DType::kU4}});

}  // namespace

Result<std::optional<DType>> kv_cache_dtype_named(std::string_view word) {
  if (word == "auto") return std::optional<DType>();
  const auto found = std::ranges::find(kNames, word, &Name::first);
  if (found != kNames.end()) return std::optional(found->second);
  if (word == "fp8_e5m2" || word == "float8_e5m2")
    return Error{
        Code::kUnsupported,
        fmt::format("{} keeps two bits of each number's mantissa and is not supported; fp8 "
                    "(e4m3 with a scale for each token and head) is as small and more exact",
                    word)};
  return Error{Code::kInvalid,
               fmt::format("\"{}\" is not known; it must be auto, float32, bfloat16, int8, fp8 or "
                           "int4",
                           word)};
}

std::optional<Error> refuse_kv_cache(const ModelSpec& spec, DType dtype) {
  const bool floats = dtype == DType::kF32 || dtype == DType::kBF16;
  for (const Layer& layer : spec.layers)
    if (!floats && dtype != DType::kF8E4M3 && std::holds_alternative<Mla>(layer.mixer))
      return Error{Code::kUnsupported,
                   fmt::format("the latent cache of this model (MLA) is kept in floats or as fp8, "
                               "{} is not supported; choose auto, bfloat16 or fp8",
                               dtype == DType::kU4 ? "int4" : name(dtype))};
  if (dtype != DType::kU4) return std::nullopt;
  for (const Layer& layer : spec.layers)
    if (const int dim = kv_shape(layer).head_dim; dim % 2 != 0)
      return Error{Code::kUnsupported,
                   fmt::format("int4 needs heads of an even size, the model's have {}; choose int8 "
                               "or fp8",
                               dim)};
  return std::nullopt;
}

}  // namespace skiff::model
