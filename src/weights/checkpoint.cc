#include "weights/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "base/log.h"
#include "gguf/gguf_files.h"
#include "weights/name_list.h"

namespace skiff {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr size_t kMaxShards = 4096;

// Reads the weight_map of an index, tensor to shard. A shard must be a file beside the index.
std::map<std::string, std::string> read_index(const std::string& path) {
  const Json index = read_json_file(path, {.max_bytes = kMaxSafetensorsHeader, .max_depth = 4});
  const auto map = Fields(index, path).need<std::map<std::string, std::string>>("weight_map");
  if (map.empty()) fail_load("{}: weight_map is empty", path);
  for (const auto& [tensor, file] : map)
    if (file.empty() || file.front() == '.' ||
        file.find_first_of(std::string_view("/\\\0", 3)) != file.npos)
      fail_load("{}: \"{}\" is said to be in \"{}\", which is not a plain file name", path,
                escaped(tensor), escaped(file));
  return map;
}

std::set<std::string> shards_of(const std::map<std::string, std::string>& index) {
  std::set<std::string> files;
  for (const auto& [tensor, file] : index) files.insert(file);
  return files;
}

std::set<std::string> safetensors_in(const std::string& dir) {
  std::set<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error))
    if (entry.path().extension() == ".safetensors") files.insert(entry.path().filename().string());
  if (error) fail_load("{}: {}", dir, error.message());
  return files;
}

void check_shards_exist(const std::string& dir, const std::set<std::string>& files) {
  std::vector<std::string> missing;
  for (const std::string& file : files)
    if (!fs::exists(fs::path(dir) / file)) missing.push_back(escaped(file));
  if (!missing.empty())
    fail_load("{}/{}: {} of {} shards are missing: {}", dir, kIndex, missing.size(), files.size(),
              name_list(missing, 5));
}

}  // namespace

Checkpoint::Checkpoint(const std::string& dir) {
  if (const std::string gguf = gguf_file_of(dir); !gguf.empty())
    open_gguf(gguf);
  else
    open_folder(dir);
}

void Checkpoint::open_gguf(const std::string& path) {
  const GgufModel model = read_gguf(path);
  for (const std::string& file : model.files) shards_.push_back({file, MappedFile(file), {}});
  for (const GgufTensor& t : model.header.tensors) {
    Shard& shard = shards_[t.file];
    if (t.end > shard.file.bytes().size())
      fail_load("{}: it became shorter while it was read", shard.path);
    shard.tensors.push_back({.name = t.name,
                             .dtype = std::string(t.type),
                             .shape = t.shape,
                             .begin = t.begin,
                             .end = t.end});
  }
  for (Shard& shard : shards_) std::ranges::sort(shard.tensors, {}, &TensorEntry::begin);
  add_tensors();
}

void Checkpoint::open_folder(const std::string& dir) {
  if (!fs::is_directory(dir)) fail_load("{}: not a folder", dir);
  const std::string index_path = (fs::path(dir) / kIndex).string();
  std::map<std::string, std::string> index;
  std::set<std::string> files;
  if (fs::exists(index_path)) {
    index = read_index(index_path);
    files = shards_of(index);
    check_shards_exist(dir, files);
  } else if (fs::exists(fs::path(dir) / kSingle)) {
    files = {kSingle};
  } else {
    files = safetensors_in(dir);
  }
  if (files.empty())
    fail_load("{}: no *.safetensors file here; convert the weights to safetensors first", dir);
  if (files.size() > kMaxShards)
    fail_load("{}: {} shards, at most {}", dir, files.size(), kMaxShards);
  for (const std::string& file : files) open_shard(dir, file);
  add_tensors();
  for (const auto& [tensor, file] : index)
    if (!find(tensor))
      fail_load("{}: tensor \"{}\" is not in \"{}\"", index_path, escaped(tensor), escaped(file));
}

void Checkpoint::open_shard(const std::string& dir, const std::string& file_name) {
  const std::string path = (fs::path(dir) / file_name).string();
  MappedFile file(path);
  auto header = parse_safetensors(file.bytes());
  if (!header) fail_load("{}: {}", path, header.error().what);
  shards_.push_back({path, std::move(file), std::move(header->tensors)});
}

void Checkpoint::add_tensors() {
  for (const Shard& shard : shards_) {
    for (const TensorEntry& t : shard.tensors) {
      const StoredTensor stored{&t, shard.file.bytes().subspan(t.begin, t.end - t.begin),
                                &shard.file};
      if (!tensors_.emplace(t.name, stored).second)
        fail_load("{}: tensor \"{}\" is in another shard too", shard.path, escaped(t.name));
      total_bytes_ += stored.bytes.size();
    }
  }
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace skiff
