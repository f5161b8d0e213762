#include "engine/fingerprint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/load_error.h"
#include "gguf/gguf_files.h"
#include "model/kv_scales.h"

namespace skiff::engine {
namespace {

namespace fs = std::filesystem;

constexpr off_t kPage = 4096, kStride = 1 << 20;

struct File {
  explicit File(const std::string& path) : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd < 0 || fstat(fd, &info) != 0) fail_load("{}: cannot be read", path);
  }
  ~File() { close(fd); }
  File(const File&) = delete;
  int fd;
  struct stat info {};
};

// Returns the file's size, perhaps its time of change, and sampled bytes; a short file is sampled
// whole.
std::string samples_of(const std::string& path, bool time) {
  const File file(path);
  const off_t stride = file.info.st_size <= kStride ? kPage : kStride;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<char> page(kPage);
  for (off_t at = 0; at < file.info.st_size; at += stride) {
    const ssize_t n = pread(file.fd, page.data(), page.size(), at);
    if (n < 0) fail_load("{}: cannot be read", path);
    XXH3_128bits_update(state.get(), page.data(), static_cast<size_t>(n));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  const std::string changed =
      time ? fmt::format(" time {}.{}", file.info.st_mtim.tv_sec, file.info.st_mtim.tv_nsec) : "";
  return fmt::format("{} bytes {}{} hash {:x} {:x}\n", fs::path(path).filename().string(),
                     file.info.st_size, changed, hash.low64, hash.high64);
}

std::vector<std::string> weight_files(const std::string& dir) {
  std::vector<std::string> paths;
  if (const std::string gguf = gguf_file_of(dir); !gguf.empty()) return read_gguf(gguf).files;
  for (const auto& entry : fs::directory_iterator(dir))
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
  std::ranges::sort(paths);
  return paths;
}

std::string text_of(const WeightFormat& format) {
  const auto part = [](std::optional<DType> dtype) { return dtype ? name(*dtype) : "none"; };
  const std::string input =
      format.input ? fmt::format("{} {}", name(format.input->dtype), int{format.input->scales})
                   : "plain";
  return fmt::format("{} block {}x{} scale {} zero {} input {}", name(format.dtype),
                     format.block_out, format.block_in, part(format.scale), part(format.zero),
                     input);
}

std::string text_of(const KvFormat& kv) {
  return fmt::format("{} group {} zero {} fixed {}", name(kv.dtype), kv.group, kv.zero, kv.fixed);
}

std::string text_of(const Precision& precision) {
  return fmt::format("weights {} activations {} kv {}", text_of(precision.weights),
                     name(precision.act), text_of(precision.kv));
}

// Returns what tells the model's configuration and weights, and those of its drafter, from others.
std::string text_of_files(const Resolved& resolved, bool times) {
  const ModelSource& model = resolved.model;
  std::string text;
  if (gguf_file_of(model.folder).empty())
    text += samples_of((fs::path(model.folder) / model.config_name).string(), times);
  if (model.format == model::LoadFormat::kDummy)
    text += fmt::format("dummy weights of seed {}\n", model.seed);
  else
    for (const std::string& path : weight_files(model.folder)) text += samples_of(path, times);
  if (resolved.precision.kv.fixed)
    for (const std::string_view file : model::kKvScaleFiles)
      if (const fs::path path = fs::path(model.folder) / file; fs::exists(path))
        text += samples_of(path.string(), times);
  // A block has the drafter's keys and values, too.
  if (resolved.drafter) {
    text += fmt::format("drafted by {}\n", resolved.speculation->method);
    text += samples_of((fs::path(resolved.drafter->folder) / "config.json").string(), times);
    for (const std::string& path : weight_files(resolved.drafter->folder))
      text += samples_of(path, times);
  }
  return text;
}

std::string hex(const kv::BlockKey& digest) {
  std::string text;
  for (const uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

kv::BlockKey fingerprint_of(const Resolved& resolved, const Arithmetic& arithmetic) {
  std::string text = fmt::format("skiff {} build {} computes on {} {} block {}\n",
                                 resolved.cache.version, arithmetic.build, arithmetic.backend,
                                 text_of(resolved.precision), resolved.cache.block_size);
  if (resolved.schemes.any()) text += fmt::format("quantized {}\n", resolved.schemes.describe());
  if (resolved.drafter && resolved.drafter->schemes.any())
    text += fmt::format("drafter quantized {}\n", resolved.drafter->schemes.describe());
  if (resolved.ranks > 1) text += fmt::format("cut among {} ranks\n", resolved.ranks);
  if (resolved.whole_experts) text += "with whole experts\n";
  if (resolved.sharers > 1)
    text += fmt::format("experts shared by {} replicas\n", resolved.sharers);
  if (resolved.drafter && resolved.drafter->part.size < resolved.ranks)
    text += "each rank has the drafter whole\n";
  text += text_of_files(resolved, /*times=*/true);
  return kv::sha256(std::as_bytes(std::span(text)));
}

peer::Facts shared_facts(const Resolved& resolved, const Arithmetic& arithmetic,
                         size_t block_bytes) {
  const std::string files = text_of_files(resolved, /*times=*/false);
  return {{"the version", resolved.cache.version},
          {"the build", arithmetic.build},
          {"the arithmetic", arithmetic.backend},
          {"the precision", text_of(resolved.precision)},
          {"the quantization while loading",
           resolved.schemes.any() ? resolved.schemes.describe() : "none"},
          {"quantization of what drafts", resolved.drafter && resolved.drafter->schemes.any()
                                              ? resolved.drafter->schemes.describe()
                                              : "none"},
          {"--enable-expert-parallel", resolved.whole_experts ? "on" : "off"},
          {"--block-size", std::to_string(resolved.cache.block_size)},
          {"the size of a block in bytes", std::to_string(block_bytes)},
          {"the digest of the model", digest_of(files)}};
}

std::string digest_of(std::string_view bytes) {
  return hex(kv::sha256(std::as_bytes(std::span(bytes))));
}

kv::BlockKey fingerprint_of(const peer::Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += fmt::format("{} {}\n", name, value);
  return kv::sha256(std::as_bytes(std::span(text)));
}

kv::BlockKey fingerprint_of(peer::Facts facts, const Resolved& resolved) {
  facts.emplace_back("--tensor-parallel-size", std::to_string(resolved.ranks));
  if (resolved.drafter)
    facts.emplace_back("draft_tensor_parallel_size", std::to_string(resolved.drafter->part.size));
  return fingerprint_of(facts);
}

}  // namespace skiff::engine
