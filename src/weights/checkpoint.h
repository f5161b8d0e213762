// weights/checkpoint.h -- all tensors of a model folder, by name, still in their files.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/mapped_file.h"
#include "weights/safetensors.h"

namespace skiff {

// A tensor in a mapped file. `bytes` may start at any address: values must be copied out.
struct StoredTensor {
  const TensorEntry* entry = nullptr;
  std::span<const std::byte> bytes;
  const MappedFile* file = nullptr;
};

// Opens model.safetensors.index.json with its shards, or else every *.safetensors of the folder
// (model.safetensors alone when it is there), or a GGUF file with its parts, whose types are the
// dtypes then. Throws LoadError naming file and tensor. Addresses stay valid while it lives and
// across moves. Const access is thread-safe.
class Checkpoint {
 public:
  explicit Checkpoint(const std::string& dir);
  const StoredTensor* find(std::string_view name) const;  // nullptr if absent
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  size_t total_bytes() const { return total_bytes_; }

 private:
  struct Shard {
    std::string path;
    MappedFile file;
    std::vector<TensorEntry> tensors;  // by rising offset
  };
  void open_folder(const std::string& dir);
  void open_gguf(const std::string& path);
  void open_shard(const std::string& dir, const std::string& file_name);
  void add_tensors();

  std::vector<Shard> shards_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  size_t total_bytes_ = 0;
};

}  // namespace skiff
