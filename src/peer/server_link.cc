#include "peer/server_link.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"

namespace skiff::peer {
namespace {

// Bytes of frames, of one piece of a block, and in all before other links have their turn. Frames
// are read in small portions, because what follows a frame is a block, which goes to its place at
// once; a piece of it is added to the checksum while the processor's cache has it.
constexpr size_t kFrames = 4 << 10, kPiece = 256 << 10, kReadAtOnce = 8 << 20;
constexpr double kGreetingSeconds = 5, kLongestRestSeconds = 30, kRefusedSeconds = 10;

ServerLink::Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<ServerLink::Clock::duration>(
      std::chrono::duration<double>(seconds));
}

}  // namespace

bool ServerLink::connect() {
  auto fd = connect_to(address_);
  since_ = heard_ = told_ = Clock::now();
  doubted_ = false;
  if (!fd) {
    rests_until_ = since_ + duration_of(next_rest_);
    spdlog::warn("prefill instance: {}", escaped(fd.error().what));
    return false;
  }
  stream_.emplace(std::move(*fd));
  state_ = State::kGreeting;
  backlog_.clear();
  incoming_.reset();
  expected_.reset();
  return true;
}

void ServerLink::send(const Message& message) {
  if (stream_) write(message, state_ == State::kReady ? stream_->out() : backlog_);
}

void ServerLink::doubt() {
  if (!stream_) return;
  doubted_ = true;
  send(Renew{});
}

void ServerLink::flush() {
  if (stream_ && !stream_->send()) lose(Loss::kGone, "the connection has ended");
}

pollfd ServerLink::polled() const {
  const bool sends = stream_->unsent() > 0;
  return {stream_->fd(), static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0};
}

void ServerLink::serve(short revents) {
  if ((revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
    const bool open = read();
    if (!stream_) return;
    if (!open)
      return lose(Loss::kGone, ready() ? "the connection has ended" : "it cannot be reached");
  }
  if (memory_socket_) take_memory();
  flush();
}

// Returns false if the connection has ended; what came before is used all the same. What was
// received and not used would not wake poll(), so none is left behind.
bool ServerLink::read() {
  bool open = true;
  for (size_t total = 0; stream_;) {
    const size_t n = incoming_ ? read_block(open) : read_frames(open);
    total += n;
    if (n == 0 || !stream_) break;
    const bool used = !incoming_ || stream_->received().empty();
    if (used && (!open || total >= kReadAtOnce)) break;
  }
  return open;
}

// Both return the number of bytes that were taken, and set `open` to false if the connection has
// ended.
size_t ServerLink::read_frames(bool& open) {
  const size_t before = stream_->received().size();
  if (!stream_->receive(kFrames)) open = false;
  const size_t n = stream_->received().size() - before;
  read_messages();
  return n;
}

size_t ServerLink::read_block(bool& open) {
  const auto rest = place_.subspan(filled_);
  const auto piece = rest.first(std::min(kPiece, rest.size()));
  size_t got = 0;
  if (!stream_->receive_into(piece, got)) open = false;
  if (got > 0) hear();
  sum_.add(piece.first(got));
  filled_ += got;
  if (filled_ < place_.size()) return got;
  const Block block = *incoming_;
  incoming_.reset();
  owner_.came(block, {.bytes = place_, .sum = sum_.sum(), .began = began_});
  if (stream_) read_messages();
  return got;
}

void ServerLink::keep_alive(Clock::time_point now) {
  if (!stream_) return;
  const double patience = ready() ? lease_seconds_ : kGreetingSeconds;
  if (now > (ready() ? heard_ : since_) + duration_of(patience)) {
    const bool greeted = ready();
    lose(Loss::kGone, "it does not answer");
    if (!greeted) next_rest_ = std::min(2 * next_rest_, kLongestRestSeconds);
    return;
  }
  if (memory_socket_ && now > since_ + duration_of(2 * kGreetingSeconds))
    do_without_memory("it does not give its memory");
  if (ready() && now > told_ + duration_of(lease_seconds_ / 3)) {
    told_ = now;
    send(Renew{});
  }
  flush();
}

void ServerLink::lose(Loss why, const std::string& reason) {
  stream_.reset();
  incoming_.reset();
  memory_socket_.reset();
  memory_.reset();
  state_ = State::kDown;
  doubted_ = false;
  const bool refused = why == Loss::kRefused;
  rests_until_ = Clock::now() + duration_of(refused ? kRefusedSeconds : next_rest_);
  owner_.lost(*this, why, reason);
}

void ServerLink::hear() {
  heard_ = Clock::now();
  doubted_ = false;
}

void ServerLink::read_messages() {
  while (stream_ && !incoming_) {
    std::string_view in = stream_->received();
    const size_t before = in.size();
    const auto message = take(in, kMaxGreeting);
    if (!message) return lose(ready() ? Loss::kDamaged : Loss::kRefused, message.error().what);
    if (!*message) return;
    stream_->consume(before - in.size());
    hear();
    if (state_ == State::kGreeting)
      greet(**message);
    else
      answer(**message);
  }
}

void ServerLink::expect_block(const Block& block) {
  incoming_ = block;
  began_ = Clock::now();
  filled_ = 0;
  sum_.begin();
  place_ = owner_.place_for(block);
  if (!place_.empty()) return;
  own_.resize(config_.block_bytes);
  place_ = own_;
}

void ServerLink::discard(uint64_t job) {
  if (!incoming_ || incoming_->job != job || place_.data() == own_.data()) return;
  own_.resize(config_.block_bytes);
  std::ranges::copy(place_.first(filled_), own_.begin());
  place_ = own_;
}

void ServerLink::greet(const Message& message) {
  if (const auto* hello = std::get_if<Hello>(&message)) {
    if (hello->magic != Hello{}.magic) return lose(Loss::kRefused, "it is no block server");
    if (hello->version != kWireVersion)
      return lose(Loss::kRefused,
                  fmt::format("it speaks version {} of the protocol, and this side version {}",
                              hello->version, kWireVersion));
    const Digest nonce = random_nonce();
    write(Login{.nonce = nonce,
                .proof = proof(config_.key, "decode", hello->nonce, nonce),
                .facts = config_.facts},
          stream_->out());
    expected_ = proof(config_.key, "prefill", nonce, hello->nonce);
    memory_wanted_ = memory_proof(config_.key, "wanted", hello->nonce, nonce);
    memory_given_ = memory_proof(config_.key, "given", hello->nonce, nonce);
    return;
  }
  if (const auto* refused = std::get_if<Refused>(&message))
    return lose(Loss::kRefused, "it refuses: " + refused->why);
  const auto* welcome = std::get_if<Welcome>(&message);
  if (welcome == nullptr) return lose(Loss::kRefused, "it says what nobody asked for");
  if (!expected_ || !same(welcome->proof, *expected_))
    return lose(Loss::kRefused, "it does not know the key of --pd-comm-key-file");
  state_ = State::kReady;
  next_rest_ = kRestSeconds;
  lease_seconds_ = std::max(0.1, welcome->lease_ms / 1e3);
  stream_->out() += backlog_;
  backlog_.clear();
  ask_for_memory(welcome->memory);
}

void ServerLink::do_without_memory(const std::string& why) {
  memory_socket_.reset();
  spdlog::info("prefill instance {} port {}: blocks come over TCP ({})", address_.host,
               address_.port, escaped(why));
}

void ServerLink::ask_for_memory(const std::string& name) {
  if (!config_.shares_memory) return do_without_memory("--cache-transfer-protocol");
  if (name.empty()) return do_without_memory("it does not share its memory");
  auto socket = LocalSocket::open();
  if (!socket) return do_without_memory(socket.error().what);
  if (!socket->send(name, memory_wanted_))
    return do_without_memory("it is on another machine, or in another network namespace");
  memory_socket_.emplace(std::move(*socket));
}

// Letters of others are left alone.
void ServerLink::take_memory() {
  while (const auto letter = memory_socket_->take()) {
    if (letter->user != geteuid() || letter->text != memory_given_) continue;
    if (const auto mapped = map(*letter); !mapped) return do_without_memory(mapped.error().what);
    memory_socket_.reset();
    send(Mapped{});
    return spdlog::info("prefill instance {} port {}: blocks come through shared memory",
                        address_.host, address_.port);
  }
}

Result<Unit> ServerLink::map(const LocalSocket::Letter& letter) {
  auto mapped = map_shared(letter.file, config_.block_bytes);
  if (!mapped) return mapped.error();
  memory_ = std::move(*mapped);
  return Unit{};
}

void ServerLink::look_up(const Here& here) {
  const size_t places = memory_ ? memory_->bytes().size() / config_.block_bytes : 0;
  if (here.place >= places)
    return lose(Loss::kDamaged, fmt::format("it names place {} of {}", here.place, places));
  const auto bytes =
      memory_->bytes().subspan(here.place * config_.block_bytes, config_.block_bytes);
  owner_.found(*this, here, {.bytes = bytes, .memory = memory_});
}

void ServerLink::answer(const Message& message) {
  if (const auto* block = std::get_if<Block>(&message)) return expect_block(*block);
  if (const auto* here = std::get_if<Here>(&message)) return look_up(*here);
  if (const auto* refused = std::get_if<Refused>(&message))
    return lose(Loss::kRefused, "it refuses: " + refused->why);
  if (const auto* miss = std::get_if<Miss>(&message)) owner_.missed(*miss);
}

}  // namespace skiff::peer
