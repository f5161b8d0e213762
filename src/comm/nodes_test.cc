// Ranks on several nodes: the same bits as a group of threads, and no rank that waits for a node
// that is gone. Nodes are groups of threads that are connected like processes, or processes.
#include "comm/nodes.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "tensor/convert.h"

namespace skiff::comm {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int64_t kCols = 40;

std::vector<float> random_values(uint64_t seed, int64_t n) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(rng);
  return values;
}

Tensor matrix(std::vector<float>& values, int64_t cols = kCols) {
  return host_tensor(values.data(), DType::kF32, {std::ssize(values) / cols, cols});
}

// Returns the two ends of a TCP connection.
std::pair<int, int> connection() {
  const int door = socket(AF_INET, SOCK_STREAM, 0), near = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(door, plain, size), 0);
  EXPECT_EQ(listen(door, 1), 0);
  EXPECT_EQ(getsockname(door, plain, &size), 0);
  EXPECT_EQ(connect(near, plain, size), 0);
  const int far = accept(door, nullptr, nullptr);
  close(door);
  return {near, far};
}

// The sockets of each node of a group, by node.
std::vector<std::vector<NodeSocket>> connected(int nodes) {
  std::vector<std::vector<NodeSocket>> sockets(static_cast<size_t>(nodes));
  for (int node = 1; node < nodes; ++node) {
    const auto [near, far] = connection();
    sockets[0].push_back({near, "node " + std::to_string(node)});
    sockets[static_cast<size_t>(node)].push_back({far, "node 0"});
  }
  return sockets;
}

using Work = std::function<void(Communicator& group, Ops& ops)>;

// Runs `work` on a thread for each rank and returns what each threw, or "".
std::vector<std::string> on_ranks(int nodes, int ranks, const Work& work) {
  std::vector<std::string> thrown(static_cast<size_t>(nodes * ranks));
  const auto sockets = connected(nodes);
  const auto run_rank = [&](Communicator& group) {
    const auto ops = make_reference_ops();
    try {
      work(group, *ops);
    } catch (const std::exception& error) {
      group.abort(error.what());
      thrown[static_cast<size_t>(group.rank())] = error.what();
    }
  };
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Nodes>> groups;
  std::vector<std::vector<Mesh>> meshes;
  for (int node = 0; node < nodes; ++node) {
    groups.push_back(
        std::make_unique<Nodes>(NodeGroup{.node = node, .nodes = nodes, .ranks = ranks},
                                sockets[static_cast<size_t>(node)]));
    meshes.push_back(groups.back()->make_meshes());
  }
  for (const auto& node : meshes)
    for (const Mesh& mesh : node) threads.emplace_back([&] { run_rank(*mesh.tp); });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

// All collectives, and the bits of what they give.
std::vector<float> collectives(Communicator& group, Ops& ops) {
  const auto rank = static_cast<uint64_t>(group.rank());
  std::vector<float> all;
  for (const int64_t rows : {1, 7, 64}) {
    std::vector<float> x = random_values(rank, rows * kCols);
    group.all_reduce(matrix(x), ops);
    all.insert(all.end(), x.begin(), x.end());

    std::vector<BF16> narrow;
    for (const float value : random_values(rank + 10, kCols)) narrow.push_back(to_bf16(value));
    group.all_reduce(host_tensor(narrow.data(), DType::kBF16, {1, kCols}), ops);
    for (const BF16 value : narrow) all.push_back(to_float(value));

    std::vector<float> weight = random_values(1, kCols), residual = random_values(2, rows * kCols),
                       out(residual.size()), delta = random_values(rank + 20, rows * kCols);
    const Norm norm{.weight = host_tensor(weight.data(), DType::kF32, {kCols}), .eps = 1e-5f};
    group.reduce_add_norm(matrix(out), matrix(residual), matrix(delta), norm, ResidualUse::kAny,
                          ops);
    all.insert(all.end(), out.begin(), out.end());
    all.insert(all.end(), residual.begin(), residual.end());

    // Rank r's columns lie in place already, so the rows of x are strided.
    std::vector<float> gathered(static_cast<size_t>(rows * kCols * group.size()), -1);
    const Tensor whole = matrix(gathered, kCols * group.size());
    const Tensor mine = whole.col_range(group.rank() * kCols, kCols);
    std::vector<float> own = random_values(rank + 30, rows * kCols);
    ops.copy(mine, matrix(own));
    group.all_gather(whole, mine, ops);
    all.insert(all.end(), gathered.begin(), gathered.end());
    all.push_back(static_cast<float>(group.least(5 + group.rank())));
  }
  return all;
}

std::vector<std::vector<float>> collectives_of_threads(int size) {
  std::vector<std::future<std::vector<float>>> futures;
  for (auto& rank : make_threads(size))
    futures.push_back(std::async(std::launch::async, [rank = std::move(rank)] {
      return collectives(*rank, *make_reference_ops());
    }));
  std::vector<std::vector<float>> all;
  all.reserve(futures.size());
  for (auto& one : futures) all.push_back(one.get());
  return all;
}

TEST(Nodes, GiveTheBitsOfThreads) {
  for (const auto& [nodes, ranks] : {std::pair(2, 1), std::pair(2, 2), std::pair(3, 1)}) {
    const auto want = collectives_of_threads(nodes * ranks);
    const auto thrown = on_ranks(nodes, ranks, [&](Communicator& group, Ops& ops) {
      EXPECT_EQ(collectives(group, ops), want[static_cast<size_t>(group.rank())]);
    });
    for (const std::string& why : thrown) EXPECT_EQ(why, "") << nodes << " x " << ranks;
  }
}

TEST(Nodes, ARankThatFailsEndsTheGroup) {
  for (const int failing : {0, 1, 3}) {
    const auto thrown = on_ranks(2, 2, [&](Communicator& group, Ops& ops) {
      std::vector<float> x(kCols, 1);
      for (int step = 0;; ++step) {
        if (step == 5 && group.rank() == failing) throw std::runtime_error("no room");
        group.all_reduce(matrix(x), ops);
      }
    });
    for (const std::string& why : thrown) EXPECT_EQ(why, "no room") << failing;
  }
}

TEST(Nodes, RanksAtDifferentPlacesEndTheGroup) {
  for (const int other : {1, 2}) {
    const auto thrown = on_ranks(2, 2, [&](Communicator& group, Ops& ops) {
      std::vector<float> x(static_cast<size_t>(kCols * (group.rank() / other == 0 ? 1 : 2)), 1);
      group.all_reduce(matrix(x), ops);
    });
    for (const std::string& why : thrown)
      EXPECT_THAT(why, HasSubstr("ranks are at different places")) << other;
  }
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Messages wait for nobody, and what was sent before the end still comes.
TEST(Nodes, MessagesComeInOrderUntilTheGroupIsDismissed) {
  const auto sockets = connected(3);
  std::vector<std::unique_ptr<Nodes>> nodes;
  nodes.reserve(3);
  for (int node = 0; node < 3; ++node)
    nodes.push_back(std::make_unique<Nodes>(
        NodeGroup{.node = node,
                  .nodes = 3,
                  .ended = [](const std::string& why) { ADD_FAILURE() << why; }},
        sockets[static_cast<size_t>(node)]));
  nodes[0]->send(bytes_of("one"));
  nodes[0]->send(bytes_of(""));
  nodes[0]->dismiss();
  for (int node = 1; node < 3; ++node) {
    Nodes& one = *nodes[static_cast<size_t>(node)];
    EXPECT_EQ(one.receive(), bytes_of("one"));
    EXPECT_EQ(one.receive(), bytes_of(""));
    EXPECT_EQ(one.receive(), std::nullopt);
    EXPECT_EQ(one.reason(), "");
  }
}

TEST(Nodes, ANodeThatEndsWithoutDismissingEndsTheGroup) {
  const auto sockets = connected(2);
  std::promise<std::string> told;
  Nodes other(
      {.node = 1, .nodes = 2, .ended = [&](const std::string& why) { told.set_value(why); }},
      sockets[1]);
  { const Nodes first({.node = 0, .nodes = 2}, sockets[0]); }
  EXPECT_EQ(told.get_future().get(), "node 0 has ended");
  EXPECT_EQ(other.receive(), std::nullopt);
  EXPECT_EQ(other.reason(), "node 0 has ended");
}

TEST(Nodes, WhatIsNoFrameEndsTheGroup) {
  const auto [near, far] = connection();
  std::promise<std::string> told;
  const Nodes nodes(
      {.node = 0, .nodes = 2, .ended = [&](const std::string& why) { told.set_value(why); }},
      {{near, "node 1"}});
  const std::string junk(kCols, 'x');
  EXPECT_EQ(write(far, junk.data(), junk.size()), std::ssize(junk));
  EXPECT_THAT(told.get_future().get(), HasSubstr("node 1 has sent what is no frame"));
  close(far);
}

constexpr int kGotReason = 3;

// Starts a process that is node `node` of three, computes until the group ends, and exits with
// kGotReason if the reason has `want` in it.
pid_t start_node(int node, double silence, const std::vector<std::vector<NodeSocket>>& sockets,
                 const std::string& want) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  for (size_t other = 0; other < sockets.size(); ++other)
    if (static_cast<int>(other) != node)
      for (const NodeSocket& socket : sockets[other]) close(socket.fd);
  try {
    Nodes nodes({.node = node, .nodes = 3, .silence_seconds = silence},
                sockets[static_cast<size_t>(node)]);
    const auto mesh = nodes.make_meshes();
    const auto ops = make_reference_ops();
    std::vector<float> x(kCols, 1);
    for (;;) mesh[0].tp->all_reduce(matrix(x), *ops);
  } catch (const GroupEnded& ended) {
    _exit(std::string(ended.what()).find(want) != std::string::npos ? kGotReason : 1);
  } catch (...) {
    _exit(2);
  }
}

int exit_code(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Sends the signal to node 1 of three processes after a few steps and returns the reason for which
// node 0 ends; the third must get it, too.
std::string reason_after(int signal, double silence, const std::string& want) {
  const auto sockets = connected(3);
  const std::vector<pid_t> pids = {start_node(1, silence, sockets, want),
                                   start_node(2, silence, sockets, want)};
  for (size_t node = 1; node < 3; ++node) close(sockets[node][0].fd);
  std::promise<std::string> told;
  std::string reason;
  {
    Nodes nodes({.node = 0,
                 .nodes = 3,
                 .silence_seconds = silence,
                 .ended = [&](const std::string& why) { told.set_value(why); }},
                sockets[0]);
    const auto mesh = nodes.make_meshes();
    const auto ops = make_reference_ops();
    std::vector<float> x(kCols, 1);
    for (int step = 0; step < 5; ++step) mesh[0].tp->all_reduce(matrix(x), *ops);
    kill(pids[0], signal);
    const auto start = Clock::now();
    try {
      for (;;) mesh[0].tp->all_reduce(matrix(x), *ops);
    } catch (const GroupEnded& ended) {
      reason = ended.what();
    }
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
    EXPECT_EQ(told.get_future().get(), reason) << "who does nothing is told as well";
    EXPECT_EQ(exit_code(pids[1]), kGotReason);
  }
  kill(pids[0], SIGKILL);
  exit_code(pids[0]);
  return reason;
}

TEST(NodeProcesses, AKilledNodeEndsTheGroup) {
  EXPECT_EQ(reason_after(SIGKILL, 6, "node 1 is gone"), "node 1 is gone");
}

TEST(NodeProcesses, AStoppedNodeEndsTheGroup) {
  EXPECT_EQ(reason_after(SIGSTOP, 3, "node 1 has been silent"), "node 1 has been silent for 3 s");
}

}  // namespace
}  // namespace skiff::comm
