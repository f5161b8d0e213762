#include "engine/weights_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "kv/block_key.h"
#include "weights/checkpoint.h"

namespace skiff::engine {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t dim : shape) text += (text.empty() ? "" : ", ") + std::to_string(dim);
  return "[" + text + "]";
}

}  // namespace

WeightsDigest weights_digest(const std::string& folder) {
  const Checkpoint checkpoint(folder);
  WeightsDigest digest;
  std::string lines;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const XXH128_hash_t hash = XXH3_128bits(tensor.bytes.data(), tensor.bytes.size());
    tensor.file->release(tensor.bytes);
    const std::string text = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
    lines += fmt::format("{} {} {} {}\n", name, tensor.entry->dtype,
                         shape_text(tensor.entry->shape), text);
    digest.tensors.emplace(name, text);
  }
  const kv::BlockKey total = kv::sha256(std::as_bytes(std::span(lines)));
  for (const uint8_t byte : total) digest.total += fmt::format("{:02x}", byte);
  return digest;
}

}  // namespace skiff::engine
