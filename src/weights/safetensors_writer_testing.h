// weights/safetensors_writer_testing.h -- for tests: safetensors bytes, right or wrong on purpose.
#pragma once
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"

namespace skiff::testing {

struct FileTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string data;
};

inline std::string f32_bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// A file of this header, with its true length ahead of it, and this data.
inline std::string safetensors_file(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + data;
}

inline std::string safetensors_bytes(const std::vector<FileTensor>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const FileTensor& t : tensors) {
    header[t.name] = {{"dtype", t.dtype},
                      {"shape", t.shape},
                      {"data_offsets", {data.size(), data.size() + t.data.size()}}};
    data += t.data;
  }
  return safetensors_file(header.dump(), data);
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace skiff::testing
