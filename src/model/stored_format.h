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

// The role of a tensor for the weight that it belongs to.
enum class Role : uint8_t { kWeight, kScale, kZero, kBias };
constexpr size_t kNumRoles = 4;
constexpr std::array<Role, kNumRoles> kRoles = {Role::kWeight, Role::kScale, Role::kZero,
                                                Role::kBias};

// The values that one module of a checkpoint holds, independent of their format.
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
      suffixes;  // endings of its name, after the module's; the first one found counts
  std::vector<std::string_view> dtypes;  // dtypes that it may have, as safetensors names them
  // Returns the shape that it must have.
  std::vector<int64_t> (*shape)(const ModuleShape& module, const StoredFormat& format) = nullptr;
  // The dtype of packed elements; without it, elements have the tensor's dtype.
  std::optional<DType> packed = std::nullopt;
};

// Every weight of the format has tensors for its rules of kWeight, kScale and kZero; a rule of
// kBias is for a tensor that a module may have besides.
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
  const StoredFormat* format = nullptr;  // nullptr if no format fits
  std::array<const StoredTensor*, kNumRoles> tensors{};

  std::string missing;                       // if no format fits: the name of a missing tensor
  const StoredTensor* unreadable = nullptr;  // or a weight with a dtype that no format reads

  const StoredTensor* of(Role role) const { return tensors[static_cast<size_t>(role)]; }
  WeightFormat weight_format() const;
};

// Returns the tensors of the first format that reads the weight's dtype and whose other tensors are
// all present. Only the weights of linear layers may be quantized.
ModuleTensors find_module(const Checkpoint& checkpoint, std::span<const StoredFormat> formats,
                          const std::string& module, bool linear, bool bias);

// Returns a tensor of this module under any name that a format has for that role; nullptr if there
// is none.
const StoredTensor* find_tensor(const Checkpoint& checkpoint, std::span<const StoredFormat> formats,
                                const std::string& module, Role role);
// Returns the dtypes that a weight may have in the formats; without `linear`, only in formats that
// are not quantized.
std::vector<std::string_view> readable_dtypes(std::span<const StoredFormat> formats, bool linear);

}  // namespace skiff::model
