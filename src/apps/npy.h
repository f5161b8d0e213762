// apps/npy.h -- writes a float32 matrix in NumPy's .npy format, version 1.0
// (numpy.org/neps/nep-0001-npy-format.html), a few rows at a time.
#pragma once
#include <cstdint>
#include <fstream>
#include <string>

#include "tensor/tensor.h"

namespace skiff::apps {

class NpyWriter {
 public:
  // Throws LoadError, naming the path, when the file cannot be written.
  NpyWriter(const std::string& path, int64_t rows, int64_t cols);
  void append(Tensor rows);  // f32 [any, cols]
  void close();              // CHECKs that all rows were appended

 private:
  std::string path_;
  std::ofstream out_;
  int64_t missing_, cols_;
};

}  // namespace skiff::apps
