#include <algorithm>
#include <cstring>

#include "base/load_error.h"
#include "model/registry.h"
#include "model/sources.h"
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

template <class D, class S>
void copy_piece(D* dst, const Piece& piece, bool transposed) {
  const auto& shape = piece.tensor->entry->shape;
  const auto at = [&](int64_t element) {
    return piece.tensor->bytes.data() + element * static_cast<int64_t>(sizeof(S));
  };
  if (transposed && shape.size() == 2)
    return copy_transposed<D, S>(dst, at(piece.col * shape[1] + piece.row), shape[1], piece.rows,
                                 piece.cols);
  const int64_t pitch = shape.size() < 2 ? 1 : shape.back();
  if (piece.cols == pitch)  // nothing lies between the rows
    return copy_plain<D, S>(dst, at(piece.row * piece.cols), piece.elements());
  for (int64_t r = 0; r < piece.rows; ++r)
    copy_plain<D, S>(dst + r * piece.cols, at((piece.row + r) * pitch + piece.col), piece.cols);
}

DType stored_dtype(const Piece& piece) {
  return dtype_of_safetensors(piece.tensor->entry->dtype).value();
}

template <class D>
void copy_as(D* dst, const Piece& piece, bool transposed) {
  switch (stored_dtype(piece)) {
    case DType::kF16:
      return copy_piece<D, F16>(dst, piece, transposed);
    case DType::kBF16:
      return copy_piece<D, BF16>(dst, piece, transposed);
    case DType::kF32:
      return copy_piece<D, float>(dst, piece, transposed);
    default:
      SKIFF_CHECK(false, "no floats in {}", piece.tensor->entry->dtype);
  }
}

// Releases the pages of values that have been read. The rows of a transposed piece are spread over
// the whole tensor, which is released with the last of them.
void release(const Piece& part, bool transposed) {
  const StoredTensor& tensor = *part.tensor;
  const auto& shape = tensor.entry->shape;
  if (shape.size() < 2) return;
  if (transposed && shape.size() == 2) {
    if (part.row + part.rows == shape[1]) tensor.file->release(tensor.bytes);
    return;
  }
  const DType dtype = stored_dtype(part);
  tensor.file->release(tensor.bytes.subspan(byte_size(dtype, part.row * shape.back()),
                                            byte_size(dtype, part.rows * shape.back())));
}

// Writes elements [begin, end) of the stacked pieces. A piece of which only a part is wanted has
// rows of `cols`.
template <class D>
void stack(D* dst, std::span<const Piece> pieces, bool transposed, int64_t cols, int64_t begin,
           int64_t end) {
  int64_t at = 0;
  for (const Piece& piece : pieces) {
    const int64_t from = std::max(begin, at), to = std::min(end, at + piece.elements());
    if (from < to) {
      Piece part = piece;
      if (to - from < piece.elements()) {
        SKIFF_CHECK_EQ(piece.cols, cols);
        part.row += (from - at) / cols;
        part.rows = (to - from) / cols;
      }
      copy_as(dst + (from - begin), part, transposed);
      release(part, transposed);
    }
    at += piece.elements();
  }
  SKIFF_CHECK(end <= at, "{} elements are stored, {} asked for", at, end);
}

class StoredValues final : public Values {
 public:
  StoredValues(const std::string& dir, const ModelSpec& spec, const std::vector<Slot>& slots)
      : slots_(slots), checkpoint_(dir) {
    const Family* family = find_family(spec.arch);
    SKIFF_CHECK(family, "spec of unknown architecture {}", spec.arch);
    const auto rules = family->names();
    try {
      sources_ = find_sources(checkpoint_, rules, stored_formats(), slots, spec);
    } catch (const LoadError& e) {
      fail_load("{}: {}", dir, e.what());
    }
    for (const Source& source : sources_)
      SKIFF_CHECK(!source.format.quantized(), "{}", describe(source.format));
  }
  DType dtype(size_t i) const override { return sources_[i].format.dtype; }
  bool has_bias(size_t i) const override { return !sources_[i].of(Role::kBias).empty(); }
  size_t bytes(size_t i) const override {
    size_t sum = 0;
    for (const auto& pieces : sources_[i].pieces)
      for (const Piece& piece : pieces) sum += byte_size(stored_dtype(piece), piece.elements());
    return sum;
  }
  void fill(size_t i, int64_t first, int64_t rows, std::byte* to) const override {
    const Source& source = sources_[i];
    const int64_t cols = slots_[i].in;
    const auto fill_as = [&]<class D>(D* dst) {
      stack(dst, source.of(Role::kWeight), source.transposed, cols, first * cols,
            (first + rows) * cols);
    };
    switch (dtype(i)) {
      case DType::kF16:
        return fill_as(reinterpret_cast<F16*>(to));
      case DType::kBF16:
        return fill_as(reinterpret_cast<BF16*>(to));
      default:
        return fill_as(reinterpret_cast<float*>(to));
    }
  }
  void fill_bias(size_t i, float* to) const override {
    stack(to, sources_[i].of(Role::kBias), false, 1, 0, slots_[i].out);
  }

 private:
  const std::vector<Slot>& slots_;
  Checkpoint checkpoint_;
  std::vector<Source> sources_;
};

}  // namespace

std::unique_ptr<Values> stored_values(const std::string& dir, const ModelSpec& spec,
                                      const std::vector<Slot>& slots) {
  return std::make_unique<StoredValues>(dir, spec, slots);
}

}  // namespace skiff::model
