// model/stored_format.h -- how checkpoints store a weight, as data: names, dtypes and shapes of its
// tensors, and the functions that turn them into the engine's one canonical form. A format is one
// short file in formats/ plus one line in the table of quantization.cc.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/checkpoint.h"
#include "weights/format.h"

namespace skiff::model {

// The role of a tensor for the weight that it belongs to.
enum class Role : uint8_t {
  kWeight,
  kScale,
  kZero,
  kBias,
  kOrder,       // the group of each column
  kInputScale,  // one scale for all activations
  kScaleOfScales,
  kCodes,        // the values of 4-bit codes
  kScaleCodes,   // the values of codes of scales
  kCodeScale,    // what codes are multiplied by before they are taken apart
  kCodeOffset,   // what is added to them then
  kInputFactor,  // what each input is multiplied by before it meets the weight
  kNote,         // a shape or a description, which must agree or has no effect
};
constexpr size_t kNumRoles = 13;

// The values that one module of a checkpoint holds, independent of their format.
struct ModuleShape {
  int64_t experts = 0;      // > 0: a stack of matrices
  int64_t out = 0, in = 1;  // a vector has `out` values
  bool vector = false;
  bool transposed = false;  // matrices are stored [in, out]

  int64_t rows() const { return (experts ? experts : 1) * out; }
};

struct StoredFormat;
struct ScaleTables;

// One tensor of a module.
struct TensorRule {
  Role role = Role::kWeight;
  std::vector<std::string_view>
      suffixes;  // endings of its name, after the module's; the first one found counts
  std::vector<std::string_view> dtypes;  // dtypes that it may have, as the file names them
  // Returns the shape that it must have; without it, settle() looks at the tensor.
  std::vector<int64_t> (*shape)(const ModuleShape& module, const StoredFormat& format) = nullptr;
  bool optional = false;
};

// A module of a checkpoint, whose tensors were found and have the shapes that the format asks for.
struct StoredModule {
  const StoredFormat* format = nullptr;
  std::array<const StoredTensor*, kNumRoles> tensors{};
  ModuleShape shape;
  // Column i of the canonical form is column order[i] of the layer's input; empty: i.
  std::vector<int32_t> order;
  std::vector<float> numbers;  // what settle() has found for elements()

  const StoredTensor* of(Role role) const { return tensors[static_cast<size_t>(role)]; }
  int64_t column(int64_t i) const { return order.empty() ? i : order[static_cast<size_t>(i)]; }
};

// Rows and columns of a module's matrix [out, in], or of its stack seen as [experts * out, in],
// however it is stored.
struct Region {
  int64_t row = 0, rows = 0, col = 0, cols = 0;
};

struct BlockRows {
  int64_t first = 0, count = 0;
};

// The way from a module's tensors to the canonical form of weights/format.h. Thread-safe. Throw
// LoadErrors that name the tensor.
struct Unpacking {
  // Writes the elements of the region, a byte each, row after row: int8 for kI8 and kI4, uint8 for
  // kU8 and kU4, the code for kF8E4M3, four bytes (float) for kF32.
  void (*elements)(const StoredModule& module, const Region& region, std::byte* to) = nullptr;
  // Write the scales and the zero points of rows of blocks, [count, ceil(in / block_in)], without
  // rounding. The blocks of a stack's next expert follow those of the one before. A format without
  // a scale has neither.
  void (*scales)(const StoredModule& module, const BlockRows& rows, float* to) = nullptr;
  void (*zeros)(const StoredModule& module, const BlockRows& rows, float* to) = nullptr;
  // Settles what the data of small tensors decide, such as the order of columns, and refuses
  // contradictions; called once, before anything else.
  void (*settle)(StoredModule& module) = nullptr;
  // Returns the scale of static activations where it is not the number of a tensor of kInputScale.
  float (*input_scale)(const StoredModule& module) = nullptr;
};

// Every weight of the format has tensors for its rules, but for optional ones; a rule of kBias is
// for a tensor that a module may have besides.
struct StoredFormat {
  std::string name;
  std::vector<TensorRule> tensors;
  // The canonical form. A scale keeps the dtype of its tensor where that is a float of 16 or 32
  // bits. Plain formats have the dtype of the weight's tensor.
  WeightFormat values;
  const Unpacking* unpacking = nullptr;  // nullptr: plain values
  int bits = 0;                          // the size of a packed element
  int group = 0;             // inputs that share a scale or a rotation, where values are floats
  int zero_offset = 0;       // added to stored zero points
  bool symmetric = false;    // all zero points must be in the middle
  bool tables = false;       // embeddings may be stored so, too
  bool zero_scales = false;  // a scale of 0 makes zeros of whatever it scales
  bool stacks = false;       // one tensor may hold the matrices of all experts
  // Scales follow from the numbers of kScale: they have the dtype of `values`, not of the tensor.
  bool derived = false;
  // Plain values under the name of the weight would be its elements: they are never read as such.
  bool alone = false;
  // Scales that are no tensors. Formats are copied, and these are large: copies share them.
  std::shared_ptr<const ScaleTables> beside;

  const TensorRule* rule(Role role) const;  // nullptr if there is no such tensor
  bool quantized() const { return unpacking != nullptr; }
};

int64_t blocks_in(int64_t elements, int block);  // ceil(elements / block), or 1 for block 0

// Rules for shapes. Matrices are [out, in] or [in, out], behind the number of experts of a stack.
std::vector<int64_t> shape_of_matrix(const ModuleShape& module, const StoredFormat& format);
std::vector<int64_t> shape_of_blocks(const ModuleShape& module, const StoredFormat& format);
std::vector<int64_t> shape_of_outputs(const ModuleShape& module, const StoredFormat& format);
std::vector<int64_t> shape_of_inputs(const ModuleShape& module, const StoredFormat& format);
std::vector<int64_t> shape_of_one(const ModuleShape& module, const StoredFormat& format);

// The bias that a module of any format may have.
TensorRule bias_rule();

StoredFormat plain_format();

// The tensors of one module.
struct ModuleTensors {
  const StoredFormat* format = nullptr;  // nullptr if no format fits
  std::array<const StoredTensor*, kNumRoles> tensors{};

  std::string missing;                       // if no format fits: the name of a missing tensor
  const StoredTensor* unreadable = nullptr;  // a weight with a dtype that no format reads, or null

  const StoredTensor* of(Role role) const { return tensors[static_cast<size_t>(role)]; }
  WeightFormat weight_format() const;
};

using FormatList = std::vector<const StoredFormat*>;

// Returns the tensors of the first format that reads the weight's dtype and whose other tensors are
// all present.
ModuleTensors find_module(const Checkpoint& checkpoint, const FormatList& formats,
                          const std::string& module, bool bias);

// Returns the tensors of this module under any name that a format has for them.
std::vector<const StoredTensor*> find_tensors(const Checkpoint& checkpoint,
                                              const FormatList& formats, const std::string& module);
// Returns the dtypes that a weight may have in the formats.
std::vector<std::string_view> readable_dtypes(const FormatList& formats);

}  // namespace skiff::model
