#include "download/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/log.h"
#include "download/part_file.h"

namespace skiff::download {
namespace {

namespace fs = std::filesystem;

Error about(const RemoteFile& file, const std::string& why, Code code = Code::kInvalid) {
  return {code, fmt::format("{}: {}", file.name, why)};
}

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// "bytes FIRST-LAST/TOTAL"
struct ContentRange {
  uint64_t first = 0, total = 0;
};
std::optional<ContentRange> content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash)
    return std::nullopt;
  const auto first = number(text.substr(0, dash)), total = number(text.substr(slash + 1));
  if (!first || !total) return std::nullopt;
  return ContentRange{*first, *total};
}

class Transfer {
 public:
  Transfer(Mirror& mirror, const RemoteFile& file, const TransferOptions& options, PartFile part,
           const std::function<void(uint64_t)>& moved)
      : mirror_(mirror),
        file_(file),
        options_(options),
        part_(std::move(part)),
        moved_(moved),
        size_(file.size) {}

  Result<Outcome> run();

 private:
  Result<Outcome> fetch_all();
  Status attempt();
  Status begin(const fetch::Response& head);
  Status take(std::string_view piece);
  Status verify();
  bool complete() const { return whole_ || (size_ && part_.size() == *size_ && *size_ > 0); }

  Mirror& mirror_;
  const RemoteFile& file_;
  const TransferOptions& options_;
  PartFile part_;
  const std::function<void(uint64_t)>& moved_;
  std::optional<uint64_t> size_;  // the whole file's size, once it is known
  std::string etag_;              // the strong ETag of the answer that the part came from, or empty
  bool whole_ = false;            // an answer has come to its end
};

Status Transfer::begin(const fetch::Response& head) {
  uint64_t total = 0;
  if (head.status == 206) {
    const auto range = content_range(head.header("content-range"));
    if (!range || range->first != part_.size())
      return about(file_, "the mirror sent another part than it was asked for");
    total = range->total;
  } else if (head.status == 200) {
    if (const Status empty = part_.clear(); !empty) return empty;
    total = number(head.header("content-length")).value_or(0);
  } else if (head.status == 416) {
    if (const Status empty = part_.clear(); !empty) return empty;
    return about(file_, "the mirror's file is shorter than what has come of it", Code::kExhausted);
  } else {
    const bool passes = head.status == 408 || head.status == 429 || head.status >= 500;
    return about(file_, fmt::format("the mirror answered {}", head.status),
                 passes ? Code::kExhausted : Code::kInvalid);
  }
  if (!head.header("content-encoding").empty() && head.header("content-encoding") != "identity")
    return about(file_, "the mirror sent it compressed");
  const std::string_view tag = head.header("etag");
  etag_ = tag.starts_with('"') ? tag : std::string_view();
  if (total == 0) return ok();
  if (file_.size && total != *file_.size)
    return about(
        file_, fmt::format("the mirror's file has {} bytes, its list says {}", total, *file_.size));
  if (total > options_.max_bytes)
    return about(file_, fmt::format("it has {} bytes, more than --max-size leaves", total));
  size_ = total;
  return ok();
}

Status Transfer::take(std::string_view piece) {
  const uint64_t limit = size_.value_or(options_.max_bytes);
  if (part_.size() + piece.size() > limit)
    return about(file_, fmt::format("the mirror sent more than {} bytes", limit));
  if (Status done = part_.append(piece); !done) return done;
  moved_(part_.size());
  return ok();
}

Status Transfer::attempt() {
  const uint64_t have = part_.size();
  const std::string range = have > 0 ? fmt::format("bytes={}-", have) : "";
  const auto response = mirror_.get(
      file_.name, range, range.empty() ? "" : etag_,
      [this](const fetch::Response& head) { return begin(head); },
      [this](std::string_view piece) { return take(piece); });
  if (!response) return response.error();
  if (size_ && part_.size() != *size_)
    return about(file_, fmt::format("{} of {} bytes came", part_.size(), *size_), Code::kExhausted);
  whole_ = true;
  return ok();
}

Status Transfer::verify() {
  if (file_.checksum.kind == Checksum::Kind::kNone) return ok();
  const auto found = part_.digest(file_.checksum.kind);
  if (!found) return found.error();
  if (*found == file_.checksum.hex) return ok();
  part_.remove();
  return about(file_, fmt::format("its {} is {}, but should be {}; what came was deleted",
                                  file_.checksum.name(), *found, file_.checksum.hex));
}

// Nothing is left of a file of which nothing came.
Result<Outcome> Transfer::run() {
  auto outcome = fetch_all();
  if (!outcome && part_.size() == 0) part_.remove();
  return outcome;
}

Result<Outcome> Transfer::fetch_all() {
  // Without a checksum nothing would tell that a part of an earlier process is of the same file.
  const bool doubtful = file_.checksum.kind == Checksum::Kind::kNone;
  const bool too_long = size_ && part_.size() > *size_;
  if (doubtful || too_long)
    if (const Status empty = part_.clear(); !empty) return empty.error();
  moved_(part_.size());
  double pause = options_.first_pause;
  for (int tries = 0; !complete(); ++tries) {
    const Status done = attempt();
    if (done) break;
    if (done.error().code != Code::kExhausted || tries >= options_.retries) return done.error();
    spdlog::warn("{}; trying again in {:.1f} s", done.error().what, pause);
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    constexpr double kLongestPause = 30;
    pause = std::min(2 * pause, kLongestPause);
    // Without a strong ETag a part cannot be told from that of another version, but by a checksum.
    if (doubtful && etag_.empty())
      if (const Status empty = part_.clear(); !empty) return empty.error();
  }
  if (const Status good = verify(); !good) return good.error();
  if (const Status named = part_.finish(); !named) return named.error();
  return Outcome::kFetched;
}

// Returns whether the file is there already. One that is there and wrong is fetched again.
Result<bool> is_present(const RemoteFile& file, const std::string& path, bool check) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return false;
  if (!fs::is_regular_file(status)) return about(file, path + " is there and is no file");
  const uint64_t size = fs::file_size(path, error);
  if (error || (file.size && size != *file.size)) return false;
  if (file.checksum.kind == Checksum::Kind::kNone || !check) return file.size || !check;
  const auto found = digest_of_file(path, file.checksum.kind);
  if (!found) return found.error();
  return *found == file.checksum.hex;
}

}  // namespace

Result<Outcome> transfer(Mirror& mirror, const RemoteFile& file, const std::string& folder,
                         const TransferOptions& options,
                         const std::function<void(uint64_t)>& moved) {
  const auto present = is_present(file, folder + "/" + file.name, options.check_present);
  if (!present) return present.error();
  if (*present) return Outcome::kPresent;
  auto part = PartFile::open(folder, file.name);
  if (!part) return part.error();
  return Transfer(mirror, file, options, std::move(*part), moved).run();
}

}  // namespace skiff::download
