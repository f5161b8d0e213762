#include "nodes/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <list>
#include <thread>
#include <utility>

#include "base/load_error.h"
#include "base/log.h"

namespace skiff::nodes {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::string_view kFirstSide = "node 0", kOtherSide = "another node";
constexpr const char* kNumber = "the number of the node";
constexpr auto kGreeting = 5s;        // for what a guest has to say
constexpr size_t kMostGuests = 64;    // guests that have connected and said nothing yet
constexpr auto kPause = 100ms;        // before what failed is tried again
constexpr int kLongestPoll = 60'000;  // ms

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

int milliseconds_to(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, kLongestPoll));
}

// Makes reads and writes of the socket wait from now on.
peer::Fd blocking(peer::Fd fd) {
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  return fd;
}

std::string name_of(int node, int fd) {
  const std::string host = peer::host_of_peer(fd);
  return fmt::format("node {} ({})", node, host.empty() ? "gone" : host);
}

// The facts with the number in front, and the number in front of facts, -1 if there is none.
peer::Facts numbered(int node, const peer::Facts& facts) {
  peer::Facts all = {{kNumber, std::to_string(node)}};
  all.insert(all.end(), facts.begin(), facts.end());
  return all;
}

int number_in(const peer::Facts& facts) {
  if (facts.empty() || facts.front().first != kNumber) return -1;
  const std::string& text = facts.front().second;
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() ? number : -1;
}

// Somebody who has connected and has not been let in.
struct Guest {
  peer::Stream stream;
  peer::Digest nonce = peer::random_nonce();
  Clock::time_point end = Clock::now() + kGreeting;
  bool over = false;
};

// A node that waits for the others to come.
struct Waiting {
  std::optional<peer::Stream> stream;
  peer::Digest proof{};  // what the Welcome of node 0 has
  std::string name;
};

// Node 0's side, from the first guest to the last.
class Gathering {
 public:
  Gathering(const Settings& settings, const peer::Fd& listener, const peer::Facts& facts)
      : settings_(settings),
        listener_(listener),
        facts_(facts),
        there_(static_cast<size_t>(settings.nodes)) {}

  std::vector<Joined> run();

 private:
  int missing() const;
  [[noreturn]] void give_up() const;
  void wait(Clock::time_point end);
  void admit();
  void hear(Guest& guest);
  void judge(Guest& guest, const peer::Login& login);
  std::string objection(const Guest& guest, const peer::Login& login) const;
  void turn_away(Guest& guest, int node, const std::string& why);
  void look_after(Waiting& node);

  const Settings& settings_;
  const peer::Fd& listener_;
  const peer::Facts& facts_;
  std::list<Guest> guests_;
  std::vector<Waiting> there_;  // by number; that of node 0 is not used
  std::string last_refusal_;
};

int Gathering::missing() const {
  return static_cast<int>(std::ranges::count_if(there_.begin() + 1, there_.end(),
                                                [](const Waiting& node) { return !node.stream; }));
}

void Gathering::give_up() const {
  std::string names;
  for (size_t node = 1; node < there_.size(); ++node)
    if (!there_[node].stream) names += fmt::format("{}{}", names.empty() ? "" : ", ", node);
  fail_load("not all of {} nodes have come within --dist-timeout {:g} s; missing: {}{}",
            settings_.nodes, settings_.join_seconds, names,
            last_refusal_.empty() ? "" : "; turned away at last: " + last_refusal_);
}

std::vector<Joined> Gathering::run() {
  const auto end = after(settings_.join_seconds);
  while (missing() > 0) {
    if (Clock::now() >= end) give_up();
    wait(end);
  }
  std::vector<Joined> all;
  for (size_t node = 1; node < there_.size(); ++node) {
    Waiting& one = there_[node];
    peer::write(peer::Welcome{.proof = one.proof}, one.stream->out());
    one.stream->send();  // who is gone by now is noticed by its link
    all.push_back({blocking(one.stream->take()), one.name});
  }
  return all;
}

// Does what the next events ask for.
void Gathering::wait(Clock::time_point end) {
  std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
  for (const Guest& guest : guests_) {
    polled.push_back({guest.stream.fd(), POLLIN, 0});
    end = std::min(end, guest.end);
  }
  for (const Waiting& node : there_)
    polled.push_back({node.stream ? node.stream->fd() : -1, POLLIN, 0});
  if (poll(polled.data(), polled.size(), milliseconds_to(end)) < 0 && errno != EINTR)
    fail_load("nodes cannot be awaited: {}", strerror(errno));
  size_t at = 1;
  for (Guest& guest : guests_) {
    if (polled[at++].revents != 0) hear(guest);
    guest.over = guest.over || Clock::now() >= guest.end;
  }
  for (Waiting& node : there_)
    if (polled[at++].revents != 0) look_after(node);
  std::erase_if(guests_, [](const Guest& guest) { return guest.over; });
  if (polled[0].revents != 0) admit();
}

// A node logs in at once, so where too many are silent the one that has been so for longest goes.
// One that is dropped in a flood connects again.
void Gathering::admit() {
  Guest guest{.stream = peer::Stream(peer::accept_from(listener_))};
  // Without free descriptors the connection stays in the queue, and poll() returns at once.
  if (guest.stream.fd() < 0) return std::this_thread::sleep_for(kPause);
  if (guests_.size() >= kMostGuests) guests_.pop_front();
  peer::write(peer::Hello{.nonce = guest.nonce}, guest.stream.out());
  if (guest.stream.send()) guests_.push_back(std::move(guest));
}

void Gathering::hear(Guest& guest) {
  guest.over = !guest.stream.receive(peer::kMaxGreeting);
  if (guest.over) return;
  std::string_view in = guest.stream.received();
  const auto message = peer::take(in, peer::kMaxGreeting);
  const peer::Login* login = nullptr;
  if (message && *message) login = std::get_if<peer::Login>(&**message);
  guest.over = !message || (*message && login == nullptr) || (login != nullptr && !in.empty());
  if (!guest.over && login != nullptr) judge(guest, *login);
}

std::string Gathering::objection(const Guest& guest, const peer::Login& login) const {
  if (!peer::same(login.proof, peer::proof(settings_.key, kOtherSide, guest.nonce, login.nonce)))
    return "it does not know the key of node 0 (--node-key-file)";
  const int node = number_in(login.facts);
  if (node < 1 || node >= settings_.nodes)
    return fmt::format("its number is {}, and node 0 awaits nodes 1 to {}", node,
                       settings_.nodes - 1);
  if (there_[static_cast<size_t>(node)].stream)
    return fmt::format("node {} has come already: {}", node,
                       there_[static_cast<size_t>(node)].name);
  return peer::difference(numbered(node, facts_), login.facts,
                          {.here = "node 0", .there = fmt::format("node {}", node)});
}

void Gathering::judge(Guest& guest, const peer::Login& login) {
  const int node = number_in(login.facts);
  guest.over = true;
  if (const std::string why = objection(guest, login); !why.empty())
    return turn_away(guest, node, why);
  Waiting& place = there_[static_cast<size_t>(node)];
  place = {.stream = {},
           .proof = peer::proof(settings_.key, kFirstSide, login.nonce, guest.nonce),
           .name = name_of(node, guest.stream.fd())};
  place.stream.emplace(guest.stream.take());
  spdlog::info("{} has come; {} of {} nodes are missing", place.name, missing(), settings_.nodes);
}

void Gathering::turn_away(Guest& guest, int node, const std::string& why) {
  last_refusal_ = fmt::format("{}: {}", name_of(node, guest.stream.fd()), why);
  spdlog::warn("turned away {}", last_refusal_);
  peer::write(peer::Refused{.why = why}, guest.stream.out());
  guest.stream.send();
}

// A node that waits has nothing to say, so it is gone, or no node.
void Gathering::look_after(Waiting& node) {
  spdlog::warn("{} has left before all nodes had come", node.name);
  node = {};
}

// Another node's side of one attempt.
class Attempt {
 public:
  Attempt(const Settings& settings, const peer::Facts& facts, Clock::time_point end)
      : settings_(settings), facts_(facts), end_(end) {}

  // Returns nothing if node 0 is not there, or has gone before it said Welcome.
  std::optional<peer::Fd> run();

 private:
  std::optional<peer::Message> next(peer::Stream& stream, Clock::time_point end) const;
  bool send_all(peer::Stream& stream) const;
  static bool ready(int fd, short events, Clock::time_point end);
  [[noreturn]] void refuse(const std::string& why) const;

  const Settings& settings_;
  const peer::Facts& facts_;
  const Clock::time_point end_;
};

void Attempt::refuse(const std::string& why) const {
  fail_load("node {} is turned away by node 0 at {} port {}: {}", settings_.node,
            settings_.first.host, settings_.first.port, why);
}

bool Attempt::ready(int fd, short events, Clock::time_point end) {
  while (Clock::now() < end) {
    pollfd one{fd, events, 0};
    if (poll(&one, 1, milliseconds_to(end)) > 0) return (one.revents & events) != 0;
  }
  return false;
}

// Reads not a byte more than the message has: what follows belongs to the group.
std::optional<peer::Message> Attempt::next(peer::Stream& stream, Clock::time_point end) const {
  for (;;) {
    std::string_view in = stream.received();
    const size_t before = in.size();
    auto message = peer::take(in, peer::kMaxGreeting);
    if (!message) refuse(fmt::format("it is no node of a group: {}", message.error().what));
    if (*message) {
      stream.consume(before - in.size());
      return std::move(*message);
    }
    if (!ready(stream.fd(), POLLIN, end) || !stream.receive(peer::lacking(in))) return std::nullopt;
  }
}

bool Attempt::send_all(peer::Stream& stream) const {
  while (stream.unsent() > 0)
    if (!ready(stream.fd(), POLLOUT, end_) || !stream.send()) return false;
  return true;
}

std::optional<peer::Fd> Attempt::run() {
  const auto address = peer::resolved(settings_.first);  // a name may become known later
  if (!address) return std::nullopt;
  auto fd = peer::connect_to(*address);
  if (!fd) return std::nullopt;
  peer::Stream stream(std::move(*fd));
  const auto greeted = std::min(end_, Clock::now() + kGreeting);
  if (!ready(stream.fd(), POLLOUT, greeted)) return std::nullopt;
  const auto first = next(stream, greeted);
  if (!first) return std::nullopt;
  const auto* hello = std::get_if<peer::Hello>(&*first);
  if (hello == nullptr || hello->magic != peer::Hello{}.magic) refuse("it is no node of a group");
  if (hello->version != peer::kWireVersion)
    refuse(fmt::format("it speaks version {} of the protocol, and this node version {}",
                       hello->version, peer::kWireVersion));
  const peer::Digest nonce = peer::random_nonce();
  peer::write(peer::Login{.nonce = nonce,
                          .proof = peer::proof(settings_.key, kOtherSide, hello->nonce, nonce),
                          .facts = numbered(settings_.node, facts_)},
              stream.out());
  if (!send_all(stream)) return std::nullopt;
  const auto answer = next(stream, end_);
  if (!answer) return std::nullopt;
  if (const auto* refused = std::get_if<peer::Refused>(&*answer))
    refuse(escaped(refused->why, peer::kMaxGreeting));
  const auto* welcome = std::get_if<peer::Welcome>(&*answer);
  if (welcome == nullptr ||
      !peer::same(welcome->proof, peer::proof(settings_.key, kFirstSide, nonce, hello->nonce)))
    fail_load("node 0 at {} port {} does not know the key of --node-key-file", settings_.first.host,
              settings_.first.port);
  return stream.take();
}

// Returns where node 0 listens. In a cluster its name may become known only after it has started.
peer::Address own_address(const Settings& settings) {
  const auto end = after(settings.join_seconds);
  for (bool first = true;; first = false) {
    const auto address = peer::resolved(settings.first);
    if (address) return *address;
    if (Clock::now() >= end)
      fail_load("the address of node 0 is not known within --dist-timeout {:g} s: {}",
                settings.join_seconds, address.error().what);
    if (first)
      spdlog::warn("the address of node 0 is not known yet, it is looked up again: {}",
                   address.error().what);
    std::this_thread::sleep_for(std::min<Clock::duration>(kPause, end - Clock::now()));
  }
}

}  // namespace

Door::Door(const Settings& settings) : settings_(settings) {
  auto listener = peer::listen_on(own_address(settings));
  if (!listener)
    fail_load("node 0: {}: choose another --engine-worker-queue-port, or correct the addresses",
              listener.error().what);
  listener_ = std::move(*listener);
}

std::vector<Joined> Door::await_all(const peer::Facts& facts) {
  return Gathering(settings_, listener_, facts).run();
}

Joined join_first(const Settings& settings, const peer::Facts& facts) {
  const auto end = after(settings.join_seconds);
  for (;;) {
    if (auto fd = Attempt(settings, facts, end).run())
      return {blocking(std::move(*fd)), fmt::format("node 0 ({})", settings.first.host)};
    if (Clock::now() >= end)
      fail_load(
          "node {}: node 0 at {} port {} has not gathered the nodes within --dist-timeout {:g} s",
          settings.node, settings.first.host, settings.first.port, settings.join_seconds);
    std::this_thread::sleep_for(std::min<Clock::duration>(kPause, end - Clock::now()));
  }
}

}  // namespace skiff::nodes
