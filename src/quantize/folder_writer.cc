#include "quantize/folder_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/load_error.h"
#include "base/log.h"

namespace skiff::quantize {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kLargestCompanion = 256u << 20;  // bytes; what is larger holds weights

void check(const std::ostream& out, const fs::path& path) {
  if (!out) fail_load("{}: cannot be written; is the disk full?", path.string());
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

// Waits until the disk has a file, or the names in a folder. Some file systems offer that for files
// only and answer EINVAL, which is no failure.
void save(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool saved = file >= 0 && (::fsync(file) == 0 || errno == EINVAL);
  const int error = errno;
  if (file >= 0) ::close(file);
  if (!saved) fail_load("{}: cannot be saved: {}", path.string(), std::strerror(error));
}

bool is_companion(const fs::path& file) {
  const std::string name = file.filename().string(), ending = file.extension().string();
  for (const std::string_view other :
       {".safetensors", ".gguf", ".bin", ".pt", ".pth", ".pdparams", ".h5", ".msgpack"})
    if (ending == other) return false;
  return name != "config.json" && !name.ends_with(".index.json") && !name.starts_with(".") &&
         fs::file_size(file) <= kLargestCompanion;
}

// An empty folder is replaced in the end, which one that is a link or a mount point does not allow:
// that is found out before hours of work, not after.
void check_replaceable(const fs::path& folder, const fs::path& out) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(out, error))) return;
  fs::rename(folder, out, error);
  if (!error) {
    fs::rename(out, folder, error);
    fs::create_directory(out, error);
    return;
  }
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  fail_load(
      "{}: cannot be replaced: {} (--out); choose a folder that does not exist, perhaps in it",
      out.string(), error.message());
}

// A path that ends in a slash has no filename.
fs::path without_slash(const fs::path& out) { return out.has_filename() ? out : out.parent_path(); }

}  // namespace

void check_out_folder(const fs::path& out) {
  if (fs::exists(out) && (!fs::is_directory(out) || !fs::is_empty(out)))
    fail_load("{}: exists already (--out); choose a folder that does not exist or is empty",
              out.string());
}

fs::path partial_folder(const fs::path& out) {
  const fs::path named = without_slash(out);
  const fs::path parent = named.has_parent_path() ? named.parent_path() : fs::path(".");
  return parent / fmt::format(".{}.{}.partial", named.filename().string(), ::getpid());
}

FolderWriter::FolderWriter(const fs::path& out, uint64_t shard_bytes)
    : out_(without_slash(out)), folder_(partial_folder(out)), shard_bytes_(shard_bytes) {
  check_out_folder(out_);
  std::error_code error;
  fs::remove_all(folder_, error);
  if (!fs::create_directories(folder_, error))
    fail_load("{}: cannot be created: {} (--out)", folder_.string(), error.message());
  check_replaceable(folder_, out_);
}

FolderWriter::~FolderWriter() {
  std::error_code ignored;
  if (!finished_) fs::remove_all(folder_, ignored);
}

void FolderWriter::open_shard() {
  Shard& shard = shards_.emplace_back();
  shard.data = folder_ / fmt::format("data-{}", shards_.size());
  data_ = std::ofstream(shard.data, std::ios::binary);
  check(data_, shard.data);
}

void FolderWriter::add(const NewTensor& tensor) {
  if (shards_.empty() ||
      (shards_.back().size > 0 && shards_.back().size + tensor.data.size() > shard_bytes_)) {
    if (!shards_.empty()) close_shard();
    open_shard();
  }
  Shard& shard = shards_.back();
  shard.header[tensor.name] = {{"dtype", tensor.dtype},
                               {"shape", tensor.shape},
                               {"data_offsets", {shard.size, shard.size + tensor.data.size()}}};
  data_.write(reinterpret_cast<const char*>(tensor.data.data()),
              static_cast<std::streamsize>(tensor.data.size()));
  check(data_, shard.data);
  shard.size += tensor.data.size();
  total_ += tensor.data.size();
}

void FolderWriter::close_shard() {
  data_.close();
  check(data_, shards_.back().data);
}

void FolderWriter::write_text(const std::string& file, const std::string& text) {
  std::ofstream out(folder_ / file, std::ios::binary);
  out << text;
  out.close();
  check(out, folder_ / file);
}

void FolderWriter::copy_companions(const fs::path& from) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(from)) {
    if (entry.is_regular_file() && is_companion(entry.path()))
      fs::copy_file(entry.path(), folder_ / entry.path().filename(), error);
    else if (entry.is_directory() && entry.path().filename() == "additional_chat_templates")
      fs::copy(entry.path(), folder_ / entry.path().filename(), fs::copy_options::recursive, error);
    if (error) fail_load("{}: cannot be copied: {}", entry.path().string(), error.message());
  }
}

void FolderWriter::copy_file(const fs::path& from, const fs::path& file) {
  std::error_code error;
  fs::create_directories((folder_ / file).parent_path(), error);
  if (!error) fs::copy_file(from / file, folder_ / file, error);
  if (error) fail_load("{}: cannot be copied: {}", (from / file).string(), error.message());
}

// The header of a file is known only when all its tensors are, so each file is written twice.
void FolderWriter::close_tensors() {
  SKIFF_CHECK(!shards_.empty(), "a model without tensors");
  close_shard();
  Json map = Json::object();
  for (size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = shards_[i];
    const std::string name = shard_name(i, shards_.size());
    for (const auto& item : shard.header.items()) map[item.key()] = name;
    shard.header["__metadata__"] = {{"format", "pt"}};
    std::string header = shard.header.dump();
    header.append((8 - header.size() % 8) % 8, ' ');
    const uint64_t length = header.size();
    std::ofstream out(folder_ / name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << header;
    if (shard.size > 0) out << std::ifstream(shard.data, std::ios::binary).rdbuf();
    out.close();
    check(out, folder_ / name);
    fs::remove(shard.data);
  }
  if (shards_.size() == 1) return;
  write_text("model.safetensors.index.json",
             Json{{"metadata", {{"total_size", total_}}}, {"weight_map", map}}.dump(2) + "\n");
}

// What has its name must have its contents too, even if power fails the moment after.
void FolderWriter::finish() {
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) save(entry.path());
  save(folder_);
  std::error_code error;
  fs::rename(folder_, out_, error);
  if (error)
    fail_load("{}: cannot be renamed to {}: {}", folder_.string(), out_.string(), error.message());
  finished_ = true;
  save(out_.has_parent_path() ? out_.parent_path() : fs::path("."));
}

}  // namespace skiff::quantize
