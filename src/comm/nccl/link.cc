#include "comm/nccl/link.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "comm/communicator.h"

namespace skiff::nccl {
namespace {

[[noreturn]] void fail(const Library& nccl, Comm comm, Outcome outcome, const char* doing) {
  const char* more = nccl.last_error != nullptr ? nccl.last_error(comm) : nullptr;
  const bool tells = more != nullptr && *more != '\0';
  throw std::runtime_error(fmt::format("NCCL error while {}: {}{}{}", doing,
                                       nccl.error_string(outcome), tells ? "; " : "",
                                       tells ? more : ""));
}

}  // namespace

UniqueId make_id(const Library& nccl) {
  UniqueId id;
  if (const Outcome outcome = nccl.get_unique_id(&id); outcome != kSuccess)
    fail(nccl, nullptr, outcome, "making the id of a group");
  return id;
}

Link::Link(const Library& nccl, const UniqueId& id, int rank, int size)
    : nccl_(nccl), rank_(rank), size_(size) {
  check(nccl_.init_rank(&comm_, size, id, rank), "joining a group");
}

Link::~Link() {
  if (comm_ != nullptr) nccl_.destroy(comm_);
}

void Link::check(Outcome outcome, const char* doing) const {
  if (outcome != kSuccess) fail(nccl_, comm_, outcome, doing);
}

void Link::need_whole() const {
  if (comm_ == nullptr) throw comm::GroupEnded(why_);
}

void Link::all_gather(const void* mine, void* all, size_t bytes, Stream stream) {
  const std::lock_guard lock(calling_);
  need_whole();
  check(nccl_.all_gather(mine, all, bytes, kBytes, comm_, stream), "gathering what all ranks have");
}

void Link::all_to_all(const std::byte* from, std::byte* to, size_t bytes, Stream stream) {
  const std::lock_guard lock(calling_);
  need_whole();
  check(nccl_.group_start(), "starting an exchange");
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    const size_t at = static_cast<size_t>(other) * bytes;
    check(nccl_.send(from + at, bytes, kBytes, other, comm_, stream), "sending to a rank");
    check(nccl_.recv(to + at, bytes, kBytes, other, comm_, stream), "receiving from a rank");
  }
  check(nccl_.group_end(), "exchanging with all ranks");
}

std::string Link::trouble() {
  const std::unique_lock lock(calling_, std::try_to_lock);
  if (!lock || comm_ == nullptr) return "";
  Outcome error = kSuccess;
  const Outcome outcome = nccl_.get_async_error(comm_, &error);
  if (outcome != kSuccess) error = outcome;
  return error == kSuccess || error == kInProgress ? "" : nccl_.error_string(error);
}

// The lock is given back first: a rank that begins a call meanwhile must not wait for the end.
bool Link::abort(const std::string& why, std::chrono::milliseconds patience) {
  Comm comm = nullptr;
  {
    const std::unique_lock lock(calling_, patience);
    if (!lock) return false;
    comm = std::exchange(comm_, nullptr);
    why_ = why;
  }
  if (comm != nullptr) nccl_.abort(comm);
  return true;
}

}  // namespace skiff::nccl
