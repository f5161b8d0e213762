// How nodes come together: in any order, and nobody who does not belong to them.
#include "nodes/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "base/load_error.h"

namespace skiff::nodes {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const peer::Facts kFacts = {{"the build", "abc"}, {"--tensor-parallel-size", "4"}};

Settings settings_of(int node, int nodes, int port, const std::string& key = "secret") {
  return {.node = node,
          .nodes = nodes,
          .first = {"127.0.0.1", port},
          .key = key,
          .join_seconds = 60,
          .facts = {}};
}

// Says what the node reads on its connection, or why it was turned away.
std::string join(const Settings& settings, const peer::Facts& facts = kFacts) {
  try {
    Joined joined = join_first(settings, facts);
    char byte = '?';
    return read(joined.fd.get(), &byte, 1) == 1 ? std::string("let in as ") + byte : "closed";
  } catch (const LoadError& error) {
    return error.what();
  }
}

// Node 0 on a thread of its own; it sends each node its number.
class Host {
 public:
  explicit Host(int nodes, double join_seconds = 60)
      : settings_(settings_of(0, nodes, 0)),
        door_((settings_.join_seconds = join_seconds, settings_)) {
    done_ = std::async(std::launch::async, [this] {
      try {
        char number = '1';
        for (const Joined& joined : door_.await_all(kFacts)) {
          EXPECT_EQ(joined.name, std::string("node ") + number + " (127.0.0.1)");
          EXPECT_EQ(write(joined.fd.get(), &number, 1), 1);
          ++number;
        }
        return std::string("all have come");
      } catch (const LoadError& error) {
        return std::string(error.what());
      }
    });
  }
  int port() const { return door_.port(); }
  std::string outcome() { return done_.get(); }

 private:
  Settings settings_;
  Door door_;
  std::future<std::string> done_;
};

TEST(Rendezvous, NodesComeInAnyOrder) {
  Host host(3);
  auto second =
      std::async(std::launch::async, [&] { return join(settings_of(2, 3, host.port())); });
  EXPECT_EQ(join(settings_of(1, 3, host.port())), "let in as 1");
  EXPECT_EQ(second.get(), "let in as 2");
  EXPECT_EQ(host.outcome(), "all have come");
}

// Each of these is told why, and node 0 waits on for those that belong to it.
TEST(Rendezvous, WhoDiffersIsTurnedAwayByName) {
  Host host(2);
  const auto refused = [&](const Settings& settings, const peer::Facts& facts = kFacts) {
    return join(settings, facts);
  };
  EXPECT_THAT(refused(settings_of(1, 2, host.port()),
                      {{"the build", "abc"}, {"--tensor-parallel-size", "2"}}),
              AllOf(HasSubstr("node 1 is turned away by node 0 at 127.0.0.1"),
                    HasSubstr("--tensor-parallel-size is 4 at node 0 and 2 at node 1")));
  EXPECT_THAT(refused(settings_of(1, 2, host.port()), {{"the build", "xyz"}}),
              HasSubstr("the build is abc at node 0 and xyz at node 1"));
  EXPECT_THAT(refused(settings_of(1, 2, host.port()), {}), HasSubstr("compare 3 and 1 facts"));
  EXPECT_THAT(refused(settings_of(1, 2, host.port(), "another")),
              HasSubstr("it does not know the key of node 0 (--node-key-file)"));
  EXPECT_THAT(refused(settings_of(5, 6, host.port())),
              HasSubstr("its number is 5, and node 0 awaits nodes 1 to 1"));
  EXPECT_EQ(refused(settings_of(1, 2, host.port())), "let in as 1");
  EXPECT_EQ(host.outcome(), "all have come");
}

TEST(Rendezvous, ANumberIsTakenOnce) {
  Host host(3);
  std::promise<std::string> back;
  std::atomic<int> done = 0;
  const auto twin = [&] {
    const std::string said = join(settings_of(1, 3, host.port()));
    if (done++ == 0) back.set_value(said);
  };
  std::vector<std::future<void>> twins;
  twins.reserve(2);
  for (int i = 0; i < 2; ++i) twins.push_back(std::async(std::launch::async, twin));
  EXPECT_THAT(back.get_future().get(), HasSubstr("node 1 has come already: node 1 (127.0.0.1)"));
  EXPECT_EQ(join(settings_of(2, 3, host.port())), "let in as 2");
  EXPECT_EQ(host.outcome(), "all have come");
}

// Bytes that are no message, silence, and a node that leaves while it waits for others.
TEST(Rendezvous, StrangersAndDesertersHoldNobodyUp) {
  Host host(3);
  const peer::Address address{"127.0.0.1", host.port()};
  const auto silent = peer::connect_to(address);
  {
    auto stranger = peer::connect_to(address);
    peer::Stream stream(std::move(*stranger));
    stream.out() = "GET / HTTP/1.1\r\n\r\n";
    stream.send();
    auto leaving = settings_of(1, 3, host.port());
    leaving.join_seconds = 0.5;
    EXPECT_THAT(join(leaving), HasSubstr("has not gathered the nodes within --dist-timeout 0.5 s"));
  }
  auto again = std::async(std::launch::async, [&] {
    for (;;)  // until node 0 has seen that the first is gone
      if (const auto said = join(settings_of(1, 3, host.port())); said.find("already") == said.npos)
        return said;
  });
  EXPECT_EQ(join(settings_of(2, 3, host.port())), "let in as 2");
  EXPECT_EQ(again.get(), "let in as 1");
  EXPECT_EQ(host.outcome(), "all have come");
}

// More than node 0 has room for; a node that comes after them is let in.
TEST(Rendezvous, SilentStrangersKeepNobodyOut) {
  Host host(2);
  std::vector<peer::Fd> strangers;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 64; ++i) {
    strangers.push_back(std::move(*peer::connect_to({"127.0.0.1", host.port()})));
    pollfd one{strangers.back().get(), POLLIN, 0};
    ASSERT_EQ(poll(&one, 1, 10000), 1) << "node 0 greets it";
  }
  EXPECT_EQ(join(settings_of(1, 2, host.port())), "let in as 1");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4))
      << "it did not wait for the strangers' time to end";
  EXPECT_EQ(host.outcome(), "all have come");
}

// A node whose power is cut is silent, as one that waits for others is.
TEST(Rendezvous, ConnectionsProbeTheOtherMachine) {
  const Settings first = settings_of(0, 2, 0);
  Door door(first);
  auto all = std::async(std::launch::async, [&] { return door.await_all(kFacts); });
  const Joined other = join_first(settings_of(1, 2, door.port()), kFacts);
  const auto joined = all.get();
  for (const int fd : {other.fd.get(), joined.front().fd.get()}) {
    int alive = 0, idle = 0;
    socklen_t size = sizeof alive;
    getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &alive, &size);
    getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &size);
    EXPECT_EQ(alive, 1);
    EXPECT_LE(idle, 10);
  }
}

TEST(Rendezvous, WhoIsMissingIsNamed) {
  Host host(3, 1);
  EXPECT_THAT(join(settings_of(2, 3, host.port(), "another")), HasSubstr("does not know the key"));
  EXPECT_THAT(
      host.outcome(),
      AllOf(HasSubstr("not all of 3 nodes have come within --dist-timeout 1 s; missing: 1, 2"),
            HasSubstr("turned away at last: node 2 (127.0.0.1)")));
  auto nobody = settings_of(1, 2, 1);
  nobody.join_seconds = 0.05;
  EXPECT_THAT(join(nobody), HasSubstr("node 0 at 127.0.0.1 port 1 has not gathered the nodes"));
}

// Whoever listens there and is no node 0 gets no facts that it could use, and is not believed.
TEST(Rendezvous, AFalseNodeZeroIsNotJoined) {
  const auto listener = peer::listen_on({"127.0.0.1", 0});
  auto said = std::async(std::launch::async,
                         [&] { return join(settings_of(1, 2, peer::port_of(*listener))); });
  peer::Fd guest;
  while (!guest.open()) guest = peer::accept_from(*listener);
  peer::Stream stream(std::move(guest));
  peer::write(peer::Hello{}, stream.out());
  peer::write(peer::Welcome{}, stream.out());
  stream.send();
  EXPECT_THAT(said.get(), HasSubstr("does not know the key of --node-key-file"));
}

TEST(Rendezvous, ANameThatStaysUnknownIsSaid) {
  Settings settings = settings_of(0, 2, 0);
  settings.first.host = "nobody.invalid";
  settings.join_seconds = 0.2;
  try {
    const Door door(settings);
    FAIL() << "it listens";
  } catch (const LoadError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("not known within --dist-timeout 0.2 s"),
                                    HasSubstr("nobody.invalid")));
  }
}

TEST(Rendezvous, APortInUseIsRefused) {
  const auto settings = settings_of(0, 2, 0);
  const Door door(settings);
  Settings same = settings;
  same.first.port = door.port();
  EXPECT_THROW(Door second(same), LoadError);
  same.first.host = "no.such.host.invalid";
  EXPECT_THROW(Door second(same), LoadError);
}

}  // namespace
}  // namespace skiff::nodes
