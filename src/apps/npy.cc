#include "apps/npy.h"

#include "base/load_error.h"

namespace skiff::apps {

NpyWriter::NpyWriter(const std::string& path, int64_t rows, int64_t cols)
    : path_(path), out_(path, std::ios::binary), missing_(rows), cols_(cols) {
  if (!out_) fail_load("{}: cannot be written (--dump-logits)", path);
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  // Magic, version and length are 10 bytes; the data starts at a multiple of 64.
  header.append(64 - (10 + header.size() + 1) % 64, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  out_.write("\x93NUMPY\x01\x00", 8);
  out_.put(static_cast<char>(length & 0xff)).put(static_cast<char>(length >> 8));
  out_ << header;
}

void NpyWriter::append(Tensor rows) {
  SKIFF_CHECK_EQ(rows.cols(), cols_);
  for (int64_t r = 0; r < rows.rows(); ++r)
    out_.write(reinterpret_cast<const char*>(rows.row<float>(r)),
               static_cast<std::streamsize>(cols_ * static_cast<int64_t>(sizeof(float))));
  missing_ -= rows.rows();
}

void NpyWriter::close() {
  SKIFF_CHECK(missing_ == 0, "{} rows missing", missing_);
  out_.close();
  if (!out_) fail_load("{}: writing failed; is the disk full?", path_);
}

}  // namespace skiff::apps
