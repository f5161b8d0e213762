// engine/temp_dir.h -- for tests: a folder of their own, with the cache's file in it.
#pragma once
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "base/check.h"

namespace skiff {

class TempDir {
 public:
  TempDir() : path_((std::filesystem::temp_directory_path() / "skiff_store_XXXXXX").string()) {
    SKIFF_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string file() const { return path_ + "/blocks.skiffkv"; }

  // Changes one byte of the file, after the first `from`.
  void damage(std::mt19937_64& rng, uint64_t from) const {
    const uint64_t size = std::filesystem::file_size(file());
    if (size <= from) return;
    std::fstream io(file(), std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(from + rng() % (size - from));
    io.seekg(at);
    const int byte = io.get();
    io.seekp(at);
    io.put(static_cast<char>(byte ^ (1 << rng() % 8)));
  }

 private:
  std::string path_;
};

}  // namespace skiff
