// bench/peer/block_transfer.cc -- how fast a prefill instance hands blocks to a decode instance of
// the same machine: the copies to the shelf, and both ways from the shelf to the host memory of the
// other side, through shared memory and over TCP, beside a bare TCP connection that carries the
// same bytes, and beside reading them only.
//
// bench_block_transfer [BLOCKS [BYTES [COPIERS]]]: a prompt's blocks (64) of so many bytes
// (3,670,016, which 64 tokens of ERNIE-4.5-21B take in bfloat16), and threads that copy them out of
// shared memory (1). The bytes that arrive are compared first.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <latch>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/seconds.h"
#include "peer/block_client.h"
#include "peer/block_server.h"
#include "peer/stream.h"

namespace skiff::peer::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRounds = 9;  // the median counts
using Blocks = std::vector<std::vector<std::byte>>;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

Blocks random_blocks(size_t count, size_t bytes) {
  std::mt19937_64 random(1);
  Blocks blocks(count, std::vector<std::byte>(bytes));
  for (auto& block : blocks)
    for (std::byte& b : block) b = static_cast<std::byte>(random());
  return blocks;
}

kv::BlockKey key_of(size_t i) {
  kv::BlockKey key{};
  for (size_t b = 0; b < 8; ++b) key[b] = static_cast<uint8_t>(i >> (8 * b));
  return key;
}

void say(const char* what, double seconds, double bytes, double link) {
  fmt::print("{:<44}{:>9.2f} ms{:>9.2f} GB/s", what, seconds * 1e3, bytes / seconds / 1e9);
  if (link > 0) fmt::print("{:>7.0f} % of the connection alone", 100 * link / seconds);
  fmt::print("\n");
}

// Returns the time in which `threads` fill the shelf with the blocks.
double fill(Shelf& shelf, const Blocks& blocks, const std::vector<int>& places, size_t threads) {
  const auto begin = Clock::now();
  std::vector<std::jthread> all;
  for (size_t t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      for (size_t i = t; i < blocks.size(); i += threads) shelf.fill(places[i], blocks[i]);
    });
  all.clear();
  return seconds_since(begin);
}

// Returns the time that a bare connection takes for the same bytes.
double bare(const Blocks& blocks, Blocks& to) {
  const Fd listener = std::move(*listen_on({"127.0.0.1", 0}));
  const Fd out = std::move(*connect_to({"127.0.0.1", port_of(listener)}));
  pollfd one{listener.get(), POLLIN, 0};
  poll(&one, 1, 10000);
  const Fd in = accept_from(listener);
  const auto begin = Clock::now();
  const std::jthread sender([&] {
    pollfd ready{out.get(), POLLOUT, 0};
    for (const auto& block : blocks)
      for (size_t at = 0; at < block.size();) {
        const ssize_t n = send(out.get(), block.data() + at, block.size() - at, MSG_NOSIGNAL);
        if (n < 0) poll(&ready, 1, 1000);
        at += static_cast<size_t>(std::max<ssize_t>(n, 0));
      }
  });
  pollfd ready{in.get(), POLLIN, 0};
  for (auto& block : to)
    for (size_t at = 0; at < block.size();) {
      const ssize_t n = recv(in.get(), block.data() + at, block.size() - at, 0);
      if (n < 0) poll(&ready, 1, 1000);
      at += static_cast<size_t>(std::max<ssize_t>(n, 0));
    }
  return seconds_since(begin);
}

// Returns the time in which `threads` take the checksums of blocks that stay where they are.
double judge(const Shelf& shelf, const std::vector<Shelf::Loan>& loans, size_t threads) {
  const auto begin = Clock::now();
  std::vector<std::jthread> all;
  for (size_t t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      for (size_t i = t; i < loans.size(); i += threads)
        SKIFF_CHECK(sum_of(loans[i].bytes()) == loans[i].sum(), "block {} of {} bytes", i,
                    shelf.block_bytes());
    });
  all.clear();
  return seconds_since(begin);
}

// Both sides, and a prompt whose blocks are all there.
class Transfer {
 public:
  Transfer(const std::shared_ptr<Shelf>& shelf, size_t count, size_t bytes, bool shares,
           int copiers)
      : host_(count, std::vector<std::byte>(bytes)) {
    BlockServer::Config server;
    server.settings.role = Role::kPrefill;
    server.compute = [](const NewSequence&) {};
    server.cancel = [](SeqId) {};
    server_ = std::make_unique<BlockServer>(std::move(server), shelf);
    BlockClient::Config client;
    client.settings.role = Role::kDecode;
    client.settings.prefills = {{"127.0.0.1", server_->port()}};
    client.settings.shares_memory = shares;
    client.copiers = copiers;
    client.block_bytes = bytes;
    client.memory = [this](int host) { return std::span(host_[size_t(host)]); };
    client.put = [](int, std::span<const std::byte>) {};
    client.answer = [this](const TierDone& done) {
      failed_ = failed_ || !done.ok;
      left_->count_down();
    };
    client_ = std::make_unique<BlockClient>(std::move(client));
  }
  // Returns the time from the first question to the last answer.
  double fetch() {
    Open wish;
    wish.lease = ++lease_;
    for (size_t i = 0; i < host_.size(); ++i) wish.keys.push_back(key_of(i));
    const auto begin = Clock::now();
    left_ = std::make_unique<std::latch>(std::ssize(host_));
    client_->open(std::move(wish), /*tokens=*/0, std::nullopt);
    for (size_t i = 0; i < host_.size(); ++i)
      client_->start({.id = ++job_,
                      .host_block = static_cast<int>(i),
                      .record = static_cast<int>(lease_),
                      .key = key_of(i),
                      .tokens = {}});
    left_->wait();
    const double seconds = seconds_since(begin);
    client_->close(lease_);
    return seconds;
  }
  bool failed() const { return failed_; }
  uint64_t shared_blocks() const { return client_->stats().shared_blocks; }
  Blocks& host() { return host_; }

 private:
  Blocks host_;
  std::unique_ptr<std::latch> left_;
  std::atomic<bool> failed_ = false;
  uint64_t lease_ = 0, job_ = 0;
  std::unique_ptr<BlockServer> server_;
  std::unique_ptr<BlockClient> client_;
};

// Fetches once, and returns whether the blocks are right and came the way that was meant. What is
// fetched before the memory is mapped comes over TCP.
bool comes_right(Transfer& transfer, const Blocks& blocks, bool shares) {
  for (int i = 0; i < 3; ++i) {
    for (auto& block : transfer.host()) std::ranges::fill(block, std::byte{});
    const uint64_t before = transfer.shared_blocks();
    transfer.fetch();
    if (transfer.failed() || transfer.host() != blocks) return false;
    const uint64_t shared = transfer.shared_blocks() - before;
    if (shared == (shares ? blocks.size() : 0)) return true;
  }
  return false;
}

int run(size_t count, size_t bytes, int copiers) {
  spdlog::set_level(spdlog::level::warn);
  const Blocks blocks = random_blocks(count, bytes);
  const auto shelf = std::make_shared<Shelf>(bytes, static_cast<int>(count), 1, /*shareable=*/true);
  std::vector<int> places;
  for (size_t i = 0; i < count; ++i) places.push_back(shelf->reserve(key_of(i)));
  const auto threads = static_cast<size_t>(copiers);
  const double first = fill(*shelf, blocks, places, threads);
  std::vector<double> one, many, judged, alone, fetched, shared;
  for (int round = 0; round < kRounds; ++round) {
    one.push_back(fill(*shelf, blocks, places, 1));
    many.push_back(fill(*shelf, blocks, places, threads));
  }
  for (const int place : places) shelf->settle(place, true);
  std::vector<Shelf::Loan> loans;
  for (size_t i = 0; i < count; ++i) loans.push_back(std::move(*shelf->lend(key_of(i))));
  Transfer over_tcp(shelf, count, bytes, /*shares=*/false, copiers);
  Transfer over_memory(shelf, count, bytes, /*shares=*/true, copiers);
  if (!comes_right(over_tcp, blocks, false) || !comes_right(over_memory, blocks, true)) {
    fmt::print(stderr, "FAILED: the blocks that came are not those that were sent\n");
    return 1;
  }
  for (int round = 0; round < kRounds; ++round) {
    alone.push_back(bare(blocks, over_tcp.host()));
    fetched.push_back(over_tcp.fetch());
    shared.push_back(over_memory.fetch());
    judged.push_back(judge(*shelf, loans, threads));
  }
  const double all = static_cast<double>(count * bytes);
  fmt::print("checked: all {} blocks of {} bytes, both ways; copying threads: {}\n", count, bytes,
             copiers);
  say("to the shelf, its first use", first, all, 0);
  say("to the shelf, one thread", median(one), all, 0);
  say("to the shelf, all threads", median(many), all, 0);
  say("a bare connection", median(alone), all, 0);
  say("to the other side's memory, over TCP", median(fetched), all, median(alone));
  say("to the other side's memory, shared memory", median(shared), all, median(alone));
  say("checksums of the shelf, nothing copied", median(judged), all, 0);
  return 0;
}

}  // namespace
}  // namespace skiff::peer::bench

int main(int argc, char** argv) {
  const size_t count = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 64;
  const size_t bytes = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 3670016;
  const int copiers = argc > 3 ? std::atoi(argv[3]) : 1;
  if (count == 0 || bytes == 0 || copiers < 1) {
    fmt::print(stderr, "bench_block_transfer [BLOCKS [BYTES [COPIERS]]]\n");
    return 2;
  }
  return skiff::peer::bench::run(count, bytes, copiers);
}
