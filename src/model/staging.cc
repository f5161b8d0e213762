#include "model/staging.h"

#include <algorithm>
#include <cstring>

#include "tensor/convert.h"

namespace skiff {
namespace {

template <class T>
T load(const std::byte* from) {  // the file may hold it at any address
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

// dst [rows, cols] from src [cols, rows], whose own rows lie `pitch` elements apart, in tiles that
// stay in the first cache.
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

template <class D>
void copy_as(D* dst, const Piece& piece, bool transposed) {
  switch (*loadable_dtype(piece.tensor->entry->dtype)) {
    case DType::kF16:
      return copy_piece<D, F16>(dst, piece, transposed);
    case DType::kBF16:
      return copy_piece<D, BF16>(dst, piece, transposed);
    default:
      return copy_piece<D, float>(dst, piece, transposed);
  }
}

// Pieces one after the other, from dst's start.
template <class D>
void stack(Tensor dst, std::span<const Piece> pieces, bool transposed) {
  D* at = dst.as<D>();
  for (const Piece& piece : pieces) {
    copy_as(at, piece, transposed);
    piece.tensor->file->release(piece.tensor->bytes);
    at += piece.elements();
  }
  SKIFF_CHECK_EQ(at - dst.as<D>(), dst.elements());
}

DType common_dtype(std::span<const Piece> pieces) {
  const DType first = *loadable_dtype(pieces[0].tensor->entry->dtype);
  const auto same = [&](const Piece& p) {
    return *loadable_dtype(p.tensor->entry->dtype) == first;
  };
  return std::ranges::all_of(pieces, same) ? first : DType::kF32;
}

Tensor view(Buffer& buffer, bool pinned, DType dtype, const Slot& slot) {
  const size_t need = static_cast<size_t>(slot.elements()) * bytes(dtype);
  if (buffer.size() < need) {
    buffer = Buffer();  // the old memory first, then the new
    buffer = pinned ? Buffer::pinned(need) : Buffer(Device{}, need);
  }
  if (slot.experts) return buffer.view(dtype, {slot.experts, slot.out, slot.in});
  if (slot.kind == Slot::kNorm || slot.kind == Slot::kVector) return buffer.view(dtype, {slot.out});
  return buffer.view(dtype, {slot.out, slot.in});
}

}  // namespace

Tensor Staging::blank_weight(const Slot& slot, DType dtype) { return view(weight_, pinned_, dtype, slot); }

Tensor Staging::blank_bias(const Slot& slot) {
  return view(bias_, pinned_, DType::kF32,
              {.kind = Slot::kVector, .name = slot.name, .out = slot.out, .parts = {}});
}

Tensor Staging::weight(const Slot& slot, const Source& source) {
  Tensor out = blank_weight(slot, common_dtype(source.weights));
  switch (out.dtype) {
    case DType::kF16:
      stack<F16>(out, source.weights, source.transposed);
      break;
    case DType::kBF16:
      stack<BF16>(out, source.weights, source.transposed);
      break;
    default:
      stack<float>(out, source.weights, source.transposed);
  }
  return out;
}

Tensor Staging::bias(const Slot& slot, const Source& source) {
  if (source.biases.empty()) return {};
  Tensor out = blank_bias(slot);
  stack<float>(out, source.biases, false);
  return out;
}

}  // namespace skiff
