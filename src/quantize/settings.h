// quantize/settings.h -- what a model is to be quantized to.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/name_pattern.h"
#include "quantize/gptq.h"
#include "quantize/layout.h"
#include "quantize/model_file.h"

namespace skiff::quantize {

enum class Method : uint8_t {
  kNearest,  // each weight alone
  kGptq,     // gptq.h
  kAwq,      // factors of fold.h, then clipping by the error of the output
  kSmooth,   // factors of fold.h for rounded weights and activations
};

// A choice of --to.
struct Target {
  std::string_view name;
  Method method = Method::kNearest;
  WeightFormat format;  // symmetric; block_in 1 stands for the group size
  std::string_view layout;
  // Whether groups have zero points with --symmetric false, and whether they have them by default.
  bool may_have_zeros = false, has_zeros = false;

  bool grouped() const { return format.block_in == 1; }
  bool calibrated() const { return method != Method::kNearest; }
};
std::span<const Target> targets();

struct Settings {
  const Target* target = nullptr;
  const Layout* layout = nullptr;
  WeightFormat format;
  std::vector<model::NamePattern> ignore;  // layers that stay plain
  bool clip = true;                        // search the clipping of scales
  bool compensate = false;                 // calibrated: GPTQ's rounding instead of the nearest
  bool shift = false;                      // subtract the middle of values (folding.h)
  GptqOptions gptq;
  int64_t min_tokens = 64;  // experts that see fewer are rounded to nearest
  std::optional<DType> kv;  // kI8 or kF8E4M3: static scales for the cache
  int threads = 1;
  std::string version;

  bool ignored(std::string_view module) const;
  // The format of a layer with `in` inputs: one scale for each output where groups do not divide.
  WeightFormat format_for(int64_t in) const;
};

// What a user says; empty and absent values stand for the defaults of the target.
struct Request {
  std::string to, layout;
  int group_size = 128;  // -1: one scale for each output
  std::optional<bool> symmetric;
  std::vector<std::string> ignore;  // names of layers or of what contains them, or re:EXPRESSION
  std::optional<DType> kv;
  bool clip = true;
  std::optional<bool> compensate;
  bool shift = false;
  GptqOptions gptq;
  int64_t min_tokens = 64;
  int threads = 1;
  std::string version;
};
// Throws a LoadError that names the flag.
Settings settle(const Request& request);

// Refuses what the layout cannot hold, before anything is computed.
void check_layer(const Settings& settings, const LayerMap& map);

}  // namespace skiff::quantize
