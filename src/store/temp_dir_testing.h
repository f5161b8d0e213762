// store/temp_dir_testing.h -- for tests: a folder of their own, with the cache's file in it.
#pragma once
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "base/check.h"

namespace skiff::store {

class TempDir {
 public:
  TempDir() : path_((std::filesystem::temp_directory_path() / "skiff_store_XXXXXX").string()) {
    SKIFF_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string file() const { return path_ + "/blocks.skiffkv"; }

  // Changes one bit of the file, near the beginning of any page but the first.
  void damage(std::mt19937_64& rng) const {
    constexpr uint64_t kPage = 4096;
    const uint64_t pages = std::filesystem::file_size(file()) / kPage;
    if (pages < 2) return;
    std::fstream io(file(), std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>((1 + rng() % (pages - 1)) * kPage + rng() % 100);
    io.seekg(at);
    const int byte = io.get();
    io.seekp(at);
    io.put(static_cast<char>(byte ^ (1 << rng() % 8)));
  }

 private:
  std::string path_;
};

}  // namespace skiff::store
