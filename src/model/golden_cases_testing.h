// model/golden_cases_testing.h -- for tests: the checkpoints of tests/golden and what they must
// answer.
#pragma once
#include <skiff_test_paths.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/load_error.h"
#include "model/loader.h"
#include "weights/safetensors.h"

namespace skiff::testing {

inline std::string golden_dir(const std::string& name) {
  return std::string(SKIFF_SOURCE_DIR) + "/tests/golden/" + name;
}

// Folders with an answer of their own; the *_paddle ones must equal their torch twin.
inline std::vector<std::string> golden_names(bool paddle) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_dir(""))) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && name.ends_with("_paddle") == paddle) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

// See tools/golden/make_golden.py.
struct Golden {
  std::vector<int32_t> prompt, greedy;
  std::vector<float> logits;  // [prompt.size(), vocab]
  float sensitivity = 0;
  std::vector<float> bf16_rows;  // [prompt.size()]
};

template <class T>
std::vector<T> read_values(const SafetensorsHeader& header, const std::string& file,
                           const std::string& name) {
  for (const TensorEntry& t : header.tensors) {
    if (t.name != name) continue;
    std::vector<T> values((t.end - t.begin) / sizeof(T));
    std::memcpy(values.data(), file.data() + t.begin, t.end - t.begin);
    return values;
  }
  fail_load("no \"{}\" in expected.st", name);
}

inline Golden read_golden(const std::string& name) {
  std::ifstream in(golden_dir(name) + "/expected.st", std::ios::binary);
  const std::string file(std::istreambuf_iterator<char>(in), {});
  const auto header = parse_safetensors(std::as_bytes(std::span(file)));
  return {read_values<int32_t>(*header, file, "prompt"),
          read_values<int32_t>(*header, file, "greedy"),
          read_values<float>(*header, file, "logits"),
          read_values<float>(*header, file, "sensitivity").at(0),
          read_values<float>(*header, file, "bf16_rows")};
}

}  // namespace skiff::testing
