// model/stored_format.h -- how checkpoints store a weight, as data: names, dtypes and shapes of its
// tensors. A format is one short file in formats/ plus one line in the table of stored_format.cc.
#pragma once
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/checkpoint.h"
#include "weights/format.h"

namespace skiff::model {

// What a tensor is to the weight that it belongs to.
enum class Role : uint8_t { kWeight, kScale, kZero, kBias };
constexpr size_t kNumRoles = 4;
constexpr std::array<Role, kNumRoles> kRoles = {Role::kWeight, Role::kScale, Role::kZero,
                                                Role::kBias};

// The values that one module of a checkpoint holds, whatever they are stored in.
struct ModuleShape {
  int64_t experts = 0;      // > 0: a stack of matrices
  int64_t out = 0, in = 1;  // a vector has `out` values
  bool vector = false;
  bool transposed = false;  // matrices are stored [in, out]
};

struct StoredFormat;

// One tensor of a module.
struct TensorRule {
  Role role = Role::kWeight;
  std::vector<std::string_view>
      suffixes;  // of its name, behind the module's; the first that is there
  std::vector<std::string_view> dtypes;  // that it may have, as safetensors names them
  // The shape that it must have.
  std::vector<int64_t> (*shape)(const ModuleShape& module, const StoredFormat& format) = nullptr;
  // Packed elements have a dtype of their own; others have that of the tensor.
  std::optional<DType> packed = std::nullopt;
};

// Rules of kWeight, kScale and kZero are for tensors that each weight of the format has, those of
// kBias for what a module may have besides.
struct StoredFormat {
  std::string_view name;
  std::vector<TensorRule> tensors;
  int block_out = 0, block_in = 0;  // as in WeightFormat

  const TensorRule* rule(Role role) const;  // nullptr if there is no such tensor
  bool quantized() const { return rule(Role::kScale) != nullptr; }
};

// Rules for shapes. Matrices are [out, in] or [in, out], behind the number of experts of a stack.
std::vector<int64_t> shape_of_matrix(const ModuleShape& module, const StoredFormat& format);
std::vector<int64_t> shape_of_blocks(const ModuleShape& module, const StoredFormat& format);
std::vector<int64_t> shape_of_outputs(const ModuleShape& module, const StoredFormat& format);

// All formats that can be read, in the order in which they are tried.
std::vector<StoredFormat> stored_formats();

// The tensors of one module.
struct ModuleTensors {
  const StoredFormat* format = nullptr;  // nullptr: none fits
  std::array<const StoredTensor*, kNumRoles> tensors{};

  std::string missing;  // no format fits: the name of a tensor that is not there
  const StoredTensor* unreadable = nullptr;  // or a weight of a dtype that no format reads

  const StoredTensor* of(Role role) const { return tensors[static_cast<size_t>(role)]; }
  WeightFormat weight_format() const;
};

// The first format whose weight is there in a dtype that it reads, with all that belongs to it.
// Only the weights of linear layers may be quantized.
ModuleTensors find_module(const Checkpoint& checkpoint, std::span<const StoredFormat> formats,
                          const std::string& module, bool linear, bool bias);

// A tensor of this module under any name that a format has for that role; nullptr if there is none.
const StoredTensor* find_tensor(const Checkpoint& checkpoint, std::span<const StoredFormat> formats,
                                const std::string& module, Role role);
// Dtypes that a weight may have in the formats; of those that are not quantized unless `linear`.
std::vector<std::string_view> readable_dtypes(std::span<const StoredFormat> formats, bool linear);

}  // namespace skiff::model
