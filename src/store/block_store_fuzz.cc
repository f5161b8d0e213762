// libFuzzer target: the cache's file with any bytes in it. Opening and reading it never crashes,
// and a block that was written comes back as it was or not at all.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/check.h"
#include "base/load_error.h"
#include "base/log.h"
#include "store/block_store.h"

namespace {

using namespace skiff;

constexpr size_t kPayload = 64;
constexpr int kBlocks = 3;

std::string folder() {
  static const std::string path = [] {
    std::string name = "/tmp/skiff_fuzz_XXXXXX";
    SKIFF_CHECK(mkdtemp(name.data()) != nullptr);
    spdlog::set_level(spdlog::level::off);
    return name;
  }();
  return path;
}

struct Block {
  explicit Block(int i) : tokens{i, i + 1}, payload(kPayload, static_cast<std::byte>(17 * i + 3)) {
    key.fill(static_cast<uint8_t>(i + 1));
  }
  kv::BlockKey key;
  std::vector<Token> tokens;
  std::vector<std::byte> payload;
};

// The file, with the input as a list of changes (offset, byte), or as all that there is.
void make_file(const store::StoreOptions& options, const uint8_t* data, size_t size, bool patches) {
  const std::string path = options.dir + "/blocks.skiffkv";
  std::remove(path.c_str());
  if (patches) {
    const auto store = store::BlockStore::open(options);
    for (int i = 0; i < kBlocks; ++i)
      store->write(i, Block(i).key, Block(i).tokens, Block(i).payload);
  }
  const auto mode = std::ios::binary | std::ios::out | (patches ? std::ios::in : std::ios::trunc);
  std::fstream file(path, mode);
  if (!patches) file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  for (size_t i = 0; patches && i + 2 < size; i += 3) {
    file.seekp((data[i] | data[i + 1] << 8) % (4096 * (kBlocks + 1)));
    file.put(static_cast<char>(data[i + 2]));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const store::StoreOptions options{
      .dir = folder(), .max_bytes = 1 << 16, .payload = kPayload, .block_size = 2};
  const bool patches = data[0] % 2;
  make_file(options, data + 1, size - 1, patches);
  std::unique_ptr<store::BlockStore> store;
  try {
    store = store::BlockStore::open(options);
  } catch (const LoadError&) {  // a mode that the umask of the machine made too open
    return 0;
  }
  if (!store) return 0;
  std::vector<std::byte> payload(kPayload);
  for (const kv::StoredBlock& found : store->found()) {
    SKIFF_CHECK(found.record >= 0 && found.record < store->num_records());
    store->read(found.record, found.key, std::vector<Token>{0, 0}, payload);
  }
  for (int i = 0; i < kBlocks; ++i) {
    const bool ok = store->read(i, Block(i).key, Block(i).tokens, payload);
    SKIFF_CHECK(!ok || !patches || payload == Block(i).payload, "block {} is wrong", i);
  }
  return 0;
}
