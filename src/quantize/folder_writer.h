// quantize/folder_writer.h -- a new model folder that appears at its place whole or not at all.
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "quantize/layout.h"

namespace skiff::quantize {

// Throws a LoadError where `out` exists and is not an empty folder.
void check_out_folder(const std::filesystem::path& out);

// The folder in which this process writes what is to be `out`, beside it.
std::filesystem::path partial_folder(const std::filesystem::path& out);

// Everything is written to partial_folder(), which finish() renames; where that is not called, the
// folder is removed. Whether it can be renamed is tried at once. Tensors go to safetensors files of
// at most about `shard_bytes`, in the order of adding. Throws a LoadError where a file cannot be
// written, and as check_out_folder() does.
class FolderWriter {
 public:
  FolderWriter(const std::filesystem::path& out, uint64_t shard_bytes);
  ~FolderWriter();
  FolderWriter(const FolderWriter&) = delete;

  void add(const NewTensor& tensor);
  void write_text(const std::string& file, const std::string& text);
  // Copies the files of a model folder that are neither weights nor config.json, templates in
  // subfolders included.
  void copy_companions(const std::filesystem::path& from);
  // Copies one more file of that folder, with the folders that it is in.
  void copy_file(const std::filesystem::path& from, const std::filesystem::path& file);
  // Closes the last shard and writes the index. The folder, still under its own name, is complete.
  void close_tensors();
  const std::filesystem::path& folder() const { return folder_; }
  void finish();
  uint64_t tensor_bytes() const { return total_; }

 private:
  struct Shard {
    Json header = Json::object();
    std::filesystem::path data;  // without its header
    uint64_t size = 0;
  };
  void open_shard();
  void close_shard();

  std::filesystem::path out_, folder_;
  uint64_t shard_bytes_, total_ = 0;
  std::vector<Shard> shards_;
  std::ofstream data_;
  bool finished_ = false;
};

}  // namespace skiff::quantize
