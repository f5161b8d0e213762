#include "engine/seen_blocks.h"

#include <algorithm>
#include <ranges>
#include <string>
#include <string_view>

#include "base/random.h"
#include "kv/block_key.h"

namespace skiff::engine {
namespace {

uint64_t mixed(uint64_t name, std::string_view text) {
  name = mix64(name + text.size());
  for (const char c : text) name = mix64(name ^ static_cast<unsigned char>(c));
  return name;
}

}  // namespace

std::vector<BlockName> block_names(const NewSequence& sequence, int block_size, uint64_t seed) {
  std::vector<BlockName> names;
  const std::vector<Token>& prompt = sequence.prompt;
  if (!sequence.cache.share || prompt.empty()) return names;
  const auto size = static_cast<size_t>(block_size);
  names.reserve((prompt.size() - 1) / size);
  BlockName name = mixed(seed, sequence.cache.salt);
  for (size_t begin = 0; begin + size < prompt.size(); begin += size) {
    for (size_t i = begin; i < begin + size; ++i)
      name = mix64(name ^ static_cast<uint32_t>(prompt[i])) + kSplitMixStep;
    const std::string extra =
        kv::extra_of(sequence.cache, static_cast<int>(begin), static_cast<int>(begin + size));
    if (!extra.empty()) name = mixed(name, extra);
    names.push_back(name);
  }
  return names;
}

size_t SeenBlocks::match(std::span<const BlockName> names) const {
  const auto miss =
      std::ranges::find_if(names, [&](BlockName name) { return !places_.contains(name); });
  return static_cast<size_t>(miss - names.begin());
}

void SeenBlocks::see(std::span<const BlockName> names) {
  for (const BlockName name : names | std::views::reverse) {
    const auto found = places_.find(name);
    if (found != places_.end()) {
      latest_.splice(latest_.begin(), latest_, found->second);
      continue;
    }
    latest_.push_front(name);
    places_.emplace(name, latest_.begin());
  }
  while (places_.size() > capacity_) {
    places_.erase(latest_.back());
    latest_.pop_back();
  }
}

}  // namespace skiff::engine
