#include "store/block_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/load_error.h"
#include "base/log.h"
#include "base/round_up.h"

namespace skiff::store {
namespace {

constexpr const char* kName = "blocks.skiffkv";
constexpr uint64_t kPage = 4096, kMaxRecords = uint64_t{1} << 20;
constexpr uint32_t kVersion = 1;
constexpr std::array<char, 8> kFileMagic{'S', 'K', 'I', 'F', 'F', 'K', 'V', '\n'};
constexpr uint64_t kRecordMagic = 0x6b636f6c62766b73;  // "skvblock"

using Hash = std::array<uint64_t, 2>;
Hash hash_of(const void* data, size_t n) {
  const XXH128_hash_t h = XXH3_128bits(data, n);
  return {h.low64, h.high64};
}

struct FileHead {
  std::array<char, 8> magic = kFileMagic;
  uint32_t version = kVersion, block_size = 0;
  uint64_t payload = 0, record_bytes = 0, records = 0;
  kv::BlockKey fingerprint{};
  Hash hash{};  // hashes the fields above
};
static_assert(sizeof(FileHead) == 88 && offsetof(FileHead, hash) == 72);

struct RecordHead {
  uint64_t magic = kRecordMagic;
  Hash hash{};  // hashes the fields below and the tokens
  uint64_t sequence = 0;
  kv::BlockKey key{};
  Hash payload{};
};
static_assert(sizeof(RecordHead) == 80 && offsetof(RecordHead, sequence) == 24);

Hash head_hash(std::span<const std::byte> head) {
  constexpr size_t kFrom = offsetof(RecordHead, sequence);
  return hash_of(head.data() + kFrom, head.size() - kFrom);
}

uint64_t record_bytes(const StoreOptions& o) {
  const uint64_t bytes = sizeof(RecordHead) + static_cast<size_t>(o.block_size) * sizeof(Token);
  return round_up<uint64_t>(bytes + o.payload, kPage);
}

[[noreturn]] void fail(const std::string& path, const char* what) {
  fail_load("--kvcache-storage-path {}: {}", path, what);
}

// Checks the opened file, not its path, so that nobody can exchange the file in between.
void need_ours(int fd, const std::string& path, mode_t type) {
  struct stat info {};
  if (fstat(fd, &info) != 0) fail(path, std::strerror(errno));
  if ((info.st_mode & S_IFMT) != type || (type == S_IFREG && info.st_nlink != 1))
    fail(path, "is of the wrong kind (a plain folder with plain files is needed)");
  if (info.st_uid != geteuid()) fail(path, "belongs to another user; choose a folder of your own");
  if (info.st_mode & (S_IWGRP | S_IWOTH))
    fail(path, "can be written to by other users; chmod go-w it");
}

// Removes slashes at the end, because a path with one would follow a symbolic link.
std::string plain(const std::string& path) {
  const std::string normal = std::filesystem::path(path).lexically_normal().string();
  return normal.size() > 1 && normal.back() == '/' ? normal.substr(0, normal.size() - 1) : normal;
}

int open_dir(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) fail(path, std::strerror(errno));
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0) return fd;
  const bool link = errno == ELOOP || errno == ENOTDIR;
  fail(path,
       link ? "is a symbolic link or no folder; name the folder itself" : std::strerror(errno));
}

struct Closing {
  int fd;
  ~Closing() {
    if (fd >= 0) close(fd);
  }
};

int open_file(const std::string& wanted) {
  const std::string dir = plain(wanted);
  const Closing folder{open_dir(dir)};
  need_ours(folder.fd, dir, S_IFDIR);
  const std::string path = dir + "/" + kName;
  Closing file{
      openat(folder.fd, kName, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600)};
  if (file.fd < 0) fail(path, errno == ELOOP ? "is a symbolic link" : std::strerror(errno));
  need_ours(file.fd, path, S_IFREG);
  if (flock(file.fd, LOCK_EX | LOCK_NB) != 0)
    fail(path, "is used by another process; each server needs a folder of its own");
  return std::exchange(file.fd, -1);
}

bool read_all(int fd, void* to, size_t n, off_t at) {
  auto* p = static_cast<std::byte*>(to);
  while (n > 0) {
    const ssize_t got = pread(fd, p, n, at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    p += got, n -= static_cast<size_t>(got), at += got;
  }
  return true;
}

bool write_all(int fd, const void* from, size_t n, off_t at) {
  const auto* p = static_cast<const std::byte*>(from);
  while (n > 0) {
    const ssize_t put = pwrite(fd, p, n, at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    p += put, n -= static_cast<size_t>(put), at += put;
  }
  return true;
}

uint64_t size_of(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

}  // namespace

std::unique_ptr<BlockStore> BlockStore::open(const StoreOptions& options) {
  const uint64_t least = kPage + record_bytes(options);
  if (options.max_bytes < least)
    fail_load("--kvcache-storage-size is {} bytes; one block of this model needs {}",
              options.max_bytes, least);
  std::unique_ptr<BlockStore> store(new BlockStore(options, open_file(options.dir)));
  if (!store->accept_header()) return nullptr;
  store->scan();
  return store;
}

BlockStore::BlockStore(const StoreOptions& options, int file)
    : options_(options),
      file_(file),
      record_bytes_(record_bytes(options)),
      num_records_(
          static_cast<int>(std::min(kMaxRecords, (options.max_bytes - kPage) / record_bytes_))),
      head_(head_bytes()) {}

BlockStore::~BlockStore() { close(file_); }

size_t BlockStore::head_bytes() const {
  return sizeof(RecordHead) + static_cast<size_t>(options_.block_size) * sizeof(Token);
}

off_t BlockStore::offset_of(int record) const {
  return static_cast<off_t>(kPage + static_cast<uint64_t>(record) * record_bytes_);
}

// Returns false if the file is not a cache of blocks, which is left as it is, or if there is no
// room for a header.
bool BlockStore::accept_header() {
  const uint64_t size = size_of(file_);
  FileHead head;
  const bool whole = size >= kPage && read_all(file_, &head, sizeof head, 0);
  if (size > 0 && (!whole || head.magic != kFileMagic)) {
    spdlog::warn("{}/{} is not a cache of KV blocks: it is left alone and not used; remove it",
                 options_.dir, kName);
    return false;
  }
  const bool same = whole && head.hash == hash_of(&head, offsetof(FileHead, hash)) &&
                    head.version == kVersion && head.record_bytes == record_bytes_ &&
                    head.payload == options_.payload && head.fingerprint == options_.fingerprint &&
                    head.block_size == static_cast<uint32_t>(options_.block_size);
  if (size > 0 && !same)
    spdlog::warn(
        "{}/{} is damaged or of another model, build, machine or block size: it is begun anew",
        options_.dir, kName);
  if (same && head.records == static_cast<uint64_t>(num_records_)) return true;
  if (begin(/*keep_records=*/same)) return true;
  spdlog::warn("{}/{} cannot be begun and is not used: {}", options_.dir, kName,
               std::strerror(errno));
  // Half a header would look like a foreign file at the next start.
  if (ftruncate(file_, 0) != 0)
    spdlog::warn("{}/{}: {}", options_.dir, kName, std::strerror(errno));
  return false;
}

bool BlockStore::begin(bool keep_records) {
  const auto most = static_cast<uint64_t>(offset_of(num_records_));
  FileHead head{.block_size = static_cast<uint32_t>(options_.block_size),
                .payload = options_.payload,
                .record_bytes = record_bytes_,
                .records = static_cast<uint64_t>(num_records_),
                .fingerprint = options_.fingerprint};
  head.hash = hash_of(&head, offsetof(FileHead, hash));
  std::vector<std::byte> page(kPage);
  std::memcpy(page.data(), &head, sizeof head);
  const uint64_t size = keep_records ? std::min(size_of(file_), most) : 0;
  return ftruncate(file_, static_cast<off_t>(size)) == 0 &&
         write_all(file_, page.data(), page.size(), 0);
}

void BlockStore::scan() {
  const uint64_t size = size_of(file_);
  const uint64_t there = size > kPage ? (size - kPage + record_bytes_ - 1) / record_bytes_ : 0;
  std::vector<std::pair<uint64_t, kv::StoredBlock>> all;
  for (int i = 0; i < static_cast<int>(std::min<uint64_t>(there, num_records_)); ++i) {
    if (!read_all(file_, head_.data(), head_.size(), offset_of(i))) break;
    RecordHead head;
    std::memcpy(&head, head_.data(), sizeof head);
    if (head.magic != kRecordMagic || head.hash != head_hash(head_)) continue;
    all.push_back({head.sequence, {.record = i, .key = head.key}});
  }
  std::ranges::sort(all, {}, [](const auto& r) { return std::pair(r.first, r.second.record); });
  for (const auto& [sequence, stored] : all) found_.push_back(stored);
  if (!all.empty()) sequence_ = all.back().first;
}

bool BlockStore::write(int record, const kv::BlockKey& key, std::span<const Token> tokens,
                       std::span<const std::byte> payload) {
  SKIFF_CHECK(record >= 0 && record < num_records_ && payload.size() == options_.payload);
  RecordHead head{
      .sequence = ++sequence_, .key = key, .payload = hash_of(payload.data(), payload.size())};
  std::memcpy(head_.data(), &head, sizeof head);
  std::memcpy(head_.data() + sizeof head, tokens.data(), tokens.size_bytes());
  head.hash = head_hash(head_);
  std::memcpy(head_.data(), &head, sizeof head);
  const off_t at = offset_of(record);
  const bool ok = write_all(file_, head_.data(), head_.size(), at) &&
                  write_all(file_, payload.data(), payload.size(), at + std::ssize(head_));
  if (!ok && !std::exchange(warned_, true))
    spdlog::warn(
        "{}/{} cannot be written to: {}; blocks that find no room are computed again, and more "
        "such failures are only counted",
        options_.dir, kName, std::strerror(errno));
  return ok;
}

bool BlockStore::read(int record, const kv::BlockKey& key, std::span<const Token> tokens,
                      std::span<std::byte> payload) {
  SKIFF_CHECK(record >= 0 && record < num_records_ && payload.size() == options_.payload);
  const off_t at = offset_of(record);
  if (!read_all(file_, head_.data(), head_.size(), at)) return false;
  RecordHead head;
  std::memcpy(&head, head_.data(), sizeof head);
  return head.magic == kRecordMagic && head.hash == head_hash(head_) && head.key == key &&
         std::memcmp(head_.data() + sizeof head, tokens.data(), tokens.size_bytes()) == 0 &&
         read_all(file_, payload.data(), payload.size(), at + std::ssize(head_)) &&
         head.payload == hash_of(payload.data(), payload.size());
}

}  // namespace skiff::store
