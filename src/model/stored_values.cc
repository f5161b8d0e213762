#include <algorithm>
#include <cstring>

#include "base/load_error.h"
#include "model/registry.h"
#include "model/stored_codes.h"
#include "model/unpack.h"
#include "model/values.h"
#include "tensor/convert.h"

namespace skiff::model {
namespace {

template <class T>
T load(const std::byte* from) {  // the value may lie at any address of the file
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class D, class S>
D as(S x) {
  if constexpr (std::is_same_v<D, S>)
    return x;
  else
    return from_float<D>(to_float(x));
}

template <class D, class S>
void copy_plain(D* dst, const std::byte* src, int64_t n) {
  if constexpr (std::is_same_v<D, S>) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(D));
  } else {
    for (int64_t i = 0; i < n; ++i)
      dst[i] = as<D>(load<S>(src + i * static_cast<int64_t>(sizeof(S))));
  }
}

// Transposes src [cols, rows], whose own rows lie `pitch` elements apart, to dst [rows, cols], in
// tiles that stay in the L1 cache.
template <class D, class S>
void copy_transposed(D* dst, const std::byte* src, int64_t pitch, int64_t rows, int64_t cols) {
  constexpr int64_t kTile = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (int64_t c0 = 0; c0 < cols; c0 += kTile)
      for (int64_t r = r0; r < std::min(r0 + kTile, rows); ++r)
        for (int64_t c = c0; c < std::min(c0 + kTile, cols); ++c)
          dst[r * cols + c] =
              as<D>(load<S>(src + (c * pitch + r) * static_cast<int64_t>(sizeof(S))));
}

DType stored_dtype(const StoredTensor& tensor) {
  return dtype_of_safetensors(tensor.entry->dtype).value();
}

// Copies a region of a plain tensor.
template <class D, class S>
void copy_region(D* dst, const StoredTensor& tensor, const Region& region,
                 const ModuleShape& module) {
  const auto& shape = tensor.entry->shape;
  const auto at = [&](int64_t element) {
    return tensor.bytes.data() + element * static_cast<int64_t>(sizeof(S));
  };
  if (module.transposed && shape.size() == 2)
    return copy_transposed<D, S>(dst, at(region.col * shape[1] + region.row), shape[1], region.rows,
                                 region.cols);
  const int64_t pitch = module.vector ? 1 : shape.back();
  if (region.cols == pitch)  // nothing lies between the rows
    return copy_plain<D, S>(dst, at(region.row * pitch), region.rows * region.cols);
  for (int64_t r = 0; r < region.rows; ++r)
    copy_plain<D, S>(dst + r * region.cols, at((region.row + r) * pitch + region.col), region.cols);
}

template <class D>
void copy_as(D* dst, const StoredTensor& tensor, const Region& region, const ModuleShape& module) {
  switch (stored_dtype(tensor)) {
    case DType::kF16:
      return copy_region<D, F16>(dst, tensor, region, module);
    case DType::kBF16:
      return copy_region<D, BF16>(dst, tensor, region, module);
    case DType::kF32:
      return copy_region<D, float>(dst, tensor, region, module);
    default:
      SKIFF_CHECK(false, "no floats in {}", tensor.entry->dtype);
  }
}

// Releases the pages of values that have been read. The rows of a transposed tensor are spread over
// all of it, so it is released with the last of them.
void release(const StoredTensor& tensor, const Region& region, const ModuleShape& module) {
  const auto& shape = tensor.entry->shape;
  if (module.vector) return;
  if (module.transposed && shape.size() == 2) {
    if (region.row + region.rows == shape[1]) tensor.file->release(tensor.bytes);
    return;
  }
  const DType dtype = stored_dtype(tensor);
  tensor.file->release(tensor.bytes.subspan(byte_size(dtype, region.row * shape.back()),
                                            byte_size(dtype, region.rows * shape.back())));
}

// Writes a region of a module as floats, whatever its format.
template <class D>
void fill_region(D* dst, const StoredModule& module, const Region& region) {
  if constexpr (!std::is_same_v<D, F16>)
    if (module.format->quantized()) return widen(module, region, dst);
  SKIFF_CHECK(!module.format->quantized(), "{} as float16", module.format->name);
  const StoredTensor& tensor = *module.of(Role::kWeight);
  copy_as(dst, tensor, region, module.shape);
  release(tensor, region, module.shape);
}

// Fills dst with a region of the module's transpose, [region.rows, region.cols].
template <class D>
void fill_transposed(D* dst, const StoredModule& module, const Region& region) {
  const Region stored{region.col, region.cols, region.row, region.rows};
  std::vector<D> rows(static_cast<size_t>(stored.rows * stored.cols));
  fill_region(rows.data(), module, stored);
  copy_transposed<D, D>(dst, reinterpret_cast<const std::byte*>(rows.data()), stored.cols,
                        region.rows, region.cols);
}

class StoredValues final : public Values {
 public:
  StoredValues(const std::string& dir, const ModelConfig& config, const std::vector<Slot>& slots,
               DType act, std::span<const SlotCut> cuts, Remarks remarks)
      : slots_(slots), cuts_(cuts), act_(act), checkpoint_(dir) {
    const Family* family = find_family(config.spec.arch);
    SKIFF_CHECK(family, "spec of unknown architecture {}", config.spec.arch);
    const auto rules = family->names();
    try {
      sources_ = find_sources(checkpoint_, rules, config.quantization, slots, config.spec, act,
                              remarks, cuts);
    } catch (const LoadError& e) {
      fail_load("{}: {}", dir, e.what());
    }
  }
  DType dtype(size_t i) const override {
    const WeightFormat& format = sources_[i].format;
    return format.quantized() ? slots_[i].dtype(act_) : format.dtype;
  }
  bool has_bias(size_t i) const override {
    const Source& source = sources_[i];
    return slots_[i].bias && !source.modules.empty() && source.modules[0].of(Role::kBias);
  }
  size_t bytes(size_t i) const override {
    size_t sum = 0;
    for (const StoredModule& module : sources_[i].modules)
      for (const StoredTensor* tensor : module.tensors)
        if (tensor) sum += tensor->bytes.size();
    return sum;
  }
  void fill(size_t i, int64_t first, int64_t rows, std::byte* to) const override {
    switch (dtype(i)) {
      case DType::kF16:
        return fill_as(i, first, rows, reinterpret_cast<F16*>(to));
      case DType::kBF16:
        return fill_as(i, first, rows, reinterpret_cast<BF16*>(to));
      default:
        return fill_as(i, first, rows, reinterpret_cast<float*>(to));
    }
  }
  void fill_bias(size_t i, float* to) const override {
    if (!cuts_.empty() && cuts_[i].no_bias) {
      std::fill_n(to, slots_[i].out, 0.0f);
      return;
    }
    const Source& source = sources_[i];
    for (const Part& part : source.parts) {
      const StoredModule& module = source.module_of(part);
      const Region& region = part.region;
      copy_as(to, *module.of(Role::kBias), {.row = region.row, .rows = region.rows, .cols = 1},
              {.out = module.shape.out, .vector = true});
      to += region.rows;
    }
  }
  StoredForm form(size_t i) const override {
    const Source& source = sources_[i];
    return {.format = source.format, .order = !source.order.empty(), .lost = source.lost};
  }
  void fill_codes(size_t i, int64_t first, const Linear& to) const override {
    model::fill_codes(sources_[i], slots_[i], first, to);
    release_codes(i, first, to.weight.rows());
  }
  std::vector<int32_t> order(size_t i) const override { return sources_[i].order; }
  std::vector<float> input_scales(size_t i) const override {
    return model::input_scales(sources_[i], slots_[i]);
  }
  std::string origin(size_t i, int64_t row) const override {
    std::string name = describe_slot(slots_[i]);
    for_each_part(sources_[i], row, 1, [&](const StoredModule& module, const Region&, int64_t) {
      name = fmt::format("tensor {}", module.of(Role::kWeight)->entry->name);
    });
    return name;
  }

 private:
  // Rows of a quantized module may be spread over all of its tensors, so these are released with
  // the last of them.
  void release_codes(size_t i, int64_t first, int64_t rows) const {
    for_each_part(sources_[i], first, rows,
                  [](const StoredModule& module, const Region& region, int64_t) {
                    if (region.row + region.rows < module.shape.rows()) return;
                    for (const StoredTensor* tensor : module.tensors)
                      if (tensor) tensor->file->release(tensor->bytes);
                  });
  }
  template <class D>
  void fill_as(size_t i, int64_t first, int64_t rows, D* to) const {
    for_each_part(sources_[i], first, rows,
                  [&](const StoredModule& module, const Region& region, int64_t at) {
                    D* dst = to + at * slots_[i].in;
                    if (sources_[i].transposed) return fill_transposed(dst, module, region);
                    fill_region(dst, module, region);
                  });
  }

  const std::vector<Slot>& slots_;
  const std::span<const SlotCut> cuts_;
  const DType act_;
  Checkpoint checkpoint_;
  std::vector<Source> sources_;
};

}  // namespace

std::unique_ptr<Values> stored_values(const std::string& dir, const ModelConfig& config,
                                      const std::vector<Slot>& slots, DType act,
                                      std::span<const SlotCut> cuts, Remarks remarks) {
  return std::make_unique<StoredValues>(dir, config, slots, act, cuts, remarks);
}

}  // namespace skiff::model
