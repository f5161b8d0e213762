// What a connection asks of the block server: to be let in, leases, and the blocks that it reads.
#include <fmt/format.h>

#include "base/log.h"
#include "peer/block_server_impl.h"

namespace skiff::peer {
namespace {

constexpr auto kBetweenRefusals = std::chrono::seconds(10);
constexpr size_t kMaxReason = 400;  // bytes of a reason in the log

}  // namespace

void BlockServer::Impl::read_messages(Connection& c) {
  while (!c.gone && !c.closing) {
    std::string_view in = c.stream.received();
    const size_t before = in.size();
    auto message = take(in, c.welcome ? kMaxFrame : kMaxGreeting);
    if (!message) return refuse(c, message.error().what);
    if (!*message) return;
    c.stream.consume(before - in.size());
    c.heard = Clock::now();
    answer(c, **message);
  }
}

void BlockServer::Impl::answer(Connection& c, Message& message) {
  if (!c.welcome) return greet(c, message);
  if (auto* wish = std::get_if<Open>(&message)) return open(c, *wish);
  if (const auto* end = std::get_if<Close>(&message)) return close(c, end->lease);
  if (const auto* wish = std::get_if<Read>(&message)) return read(c, *wish);
  if (const auto* done = std::get_if<Taken>(&message)) return void(c.lent.erase(done->job));
  if (std::holds_alternative<Renew>(message)) return write(Renew{}, c.stream.out());
  if (std::holds_alternative<Mapped>(message) && memory) return void(c.mapped = true);
  refuse(c, "a message that only the other side sends");
}

void BlockServer::Impl::greet(Connection& c, const Message& message) {
  const auto* login = std::get_if<Login>(&message);
  if (login == nullptr) return refuse(c, "the first message is no login");
  const std::string& key = config.settings.key;
  if (!same(login->proof, proof(key, "decode", c.nonce, login->nonce)))
    return refuse(c, "the keys of --pd-comm-key-file differ, or only one side has one");
  if (const std::string why = difference(config.facts, login->facts); !why.empty())
    return refuse(c, why);
  c.welcome = true;
  if (memory) {
    c.wants = memory_proof(key, "wanted", c.nonce, login->nonce);
    c.answer = memory_proof(key, "given", c.nonce, login->nonce);
  }
  write(Welcome{.proof = proof(key, "prefill", login->nonce, c.nonce),
                .lease_ms = static_cast<uint32_t>(config.settings.lease_seconds * 1000),
                .memory = memory ? memory->name() : ""},
        c.stream.out());
}

void BlockServer::Impl::refuse(Connection& c, const std::string& why) {
  say_refused(c, why);
  write(Refused{why}, c.stream.out());
  c.closing = true;
}

// Whoever reaches the port can be refused as often as it likes, so not each time gets a line.
void BlockServer::Impl::say_refused(const Connection& c, const std::string& why) {
  const auto now = Clock::now();
  if (said_refused && now < *said_refused + kBetweenRefusals) return void(++unsaid);
  said_refused = now;
  const std::string host = host_of_peer(c.stream.fd());
  spdlog::warn("a decode instance at {} was refused: {}{}", host.empty() ? "(gone)" : host,
               escaped(why, kMaxReason),
               unsaid == 0 ? "" : fmt::format("; {} more since the last such line", unsaid));
  unsaid = 0;
}

// A decode instance on which very many prompts wait knows no bounds, and the leases that it has are
// still of use to it. So one more is left out: its reads find no lease.
void BlockServer::Impl::open(Connection& c, Open& message) {
  const Limits& limits = config.limits;
  if (c.leases.size() >= limits.leases || c.keys + message.keys.size() > limits.keys) return;
  if (draining && !message.prompt.empty()) return;
  const auto [it, is_new] = c.leases.emplace(message.lease, Lease{});
  if (!is_new) return refuse(c, fmt::format("lease {} is open already", message.lease));
  Lease& lease = it->second;
  lease.keys = std::move(message.keys);
  c.keys += lease.keys.size();
  for (const kv::BlockKey& key : lease.keys) shelf->lease(key);
  if (!message.prompt.empty()) start(lease, message);
}

void BlockServer::Impl::start(Lease& lease, Open& message) {
  lease.seq = next++;
  ++prompts;
  NewSequence sequence;
  sequence.id = lease.seq;
  sequence.prompt = std::move(message.prompt);
  sequence.params.temperature = 0;
  sequence.stop.max_tokens = 1;
  sequence.priority = message.priority;
  sequence.cache.salt = std::move(message.salt);
  sequence.cache.extras = std::move(message.extras);
  config.compute(std::move(sequence));
}

void BlockServer::Impl::close(Connection& c, uint64_t id) {
  const auto found = c.leases.find(id);
  if (found == c.leases.end()) return;
  const Lease& lease = found->second;
  for (const kv::BlockKey& key : lease.keys) shelf->unlease(key);
  c.keys -= lease.keys.size();
  if (lease.seq != 0 && !lease.failed && !lease.done) config.cancel(lease.seq);
  c.leases.erase(found);
  const auto of_it = [id](const Read& read) { return read.lease == id; };
  std::erase_if(c.reads, of_it);
  std::erase_if(c.waiting, of_it);
  std::erase_if(c.lent, [id](const auto& each) { return each.second.lease == id; });
}

void BlockServer::Impl::read(Connection& c, const Read& message) {
  if (c.reads.size() + c.waiting.size() + c.lent.size() >= config.limits.reads)
    return refuse(c, fmt::format("more than {} reads at a time", config.limits.reads));
  if (!c.leases.contains(message.lease)) return miss(c, message, Loss::kMissing);
  c.reads.push_back(message);
}

void BlockServer::Impl::miss(Connection& c, const Read& read, Loss why) {
  write(Miss{.job = read.job, .why = static_cast<uint8_t>(why)}, c.stream.out());
}

}  // namespace skiff::peer
