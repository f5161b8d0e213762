#include "peer/wire.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "base/log.h"

namespace skiff::peer {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kFrameHead = 13;
constexpr size_t kMaxShown = 1000;  // bytes of a fact of the other side that a message shows

// Returns the sum of a frame: XXH3-64 of its fields, seeded with its length and its kind.
uint64_t sum_of(uint8_t kind, std::string_view fields) {
  return XXH3_64bits_withSeed(fields.data(), fields.size(), uint64_t{fields.size()} << 8 | kind);
}

template <class T>
constexpr bool is_number = std::is_arithmetic_v<T>;
template <class T>
constexpr bool is_bytes = std::is_same_v<T, Digest>;

// The fields of each message, in the order in which they are sent.
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Hello>
void visit(V& v, M& m) { v(m.magic), v(m.version), v(m.nonce); }
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Login>
void visit(V& v, M& m) { v(m.nonce), v(m.proof), v(m.facts); }
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Welcome>
void visit(V& v, M& m) { v(m.proof), v(m.lease_ms), v(m.memory); }
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Refused>
void visit(V& v, M& m) { v(m.why); }
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Open>
void visit(V& v, M& m) {
  v(m.lease), v(m.priority), v(m.keys), v(m.prompt), v(m.salt), v(m.extras);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Close>
void visit(V& v, M& m) { v(m.lease); }
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Read>
void visit(V& v, M& m) { v(m.job), v(m.lease), v(m.key); }
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Renew>
void visit(V&, M&) {}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Block>
void visit(V& v, M& m) { v(m.job), v(m.key), v(m.low), v(m.high); }
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Miss>
void visit(V& v, M& m) { v(m.job), v(m.why); }
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Mapped>
void visit(V&, M&) {}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Here>
void visit(V& v, M& m) { v(m.job), v(m.key), v(m.place), v(m.low), v(m.high); }
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Taken>
void visit(V& v, M& m) { v(m.job); }

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}
  template <class T>
  requires(is_number<T> || is_bytes<T>) void operator()(const T& value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void operator()(const std::string& text) {
    (*this)(static_cast<uint32_t>(text.size()));
    out_ += text;
  }
  void operator()(const std::pair<std::string, std::string>& pair) {
    (*this)(pair.first), (*this)(pair.second);
  }
  void operator()(const CacheExtra& extra) {
    (*this)(extra.begin), (*this)(extra.end), (*this)(extra.identity);
  }
  template <class T>
  void operator()(const std::vector<T>& list) {
    (*this)(static_cast<uint32_t>(list.size()));
    for (const T& item : list) (*this)(item);
  }

 private:
  std::string& out_;
};

// Once something does not fit, all that follows reads as nothing and ok() is false.
class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}
  bool ok() const { return ok_; }
  bool at_end() const { return in_.empty(); }

  template <class T>
  requires(is_number<T> || is_bytes<T>) void operator()(T& value) {
    if (!need(sizeof value)) return;
    std::memcpy(&value, in_.data(), sizeof value);
    in_.remove_prefix(sizeof value);
  }
  void operator()(std::string& text) {
    const uint32_t size = count(1);
    text = in_.substr(0, size);
    in_.remove_prefix(size);
  }
  void operator()(std::pair<std::string, std::string>& pair) {
    (*this)(pair.first), (*this)(pair.second);
  }
  void operator()(CacheExtra& extra) {
    (*this)(extra.begin), (*this)(extra.end), (*this)(extra.identity);
  }
  template <class T>
  void operator()(std::vector<T>& list) {
    list.resize(count(least_bytes<T>()));
    for (T& item : list) (*this)(item);
  }

 private:
  template <class T>
  static constexpr size_t least_bytes() {
    if constexpr (is_number<T> || is_bytes<T>) return sizeof(T);
    return std::is_same_v<T, CacheExtra> ? 12 : 8;
  }
  bool need(size_t bytes) {
    ok_ = ok_ && bytes <= in_.size();
    return ok_;
  }
  // Reads a number of items, each of which takes at least so many bytes of what is left.
  uint32_t count(size_t each) {
    uint32_t n = 0;
    (*this)(n);
    return need(size_t{n} * each) ? n : 0;
  }
  std::string_view in_;
  bool ok_ = true;
};

template <size_t kind = 0>
std::optional<Message> read(size_t wanted, std::string_view fields) {
  if constexpr (kind == std::variant_size_v<Message>) {
    return std::nullopt;
  } else {
    if (wanted != kind) return read<kind + 1>(wanted, fields);
    std::variant_alternative_t<kind, Message> message;
    Reader reader(fields);
    visit(reader, message);
    if (!reader.ok() || !reader.at_end()) return std::nullopt;
    return message;
  }
}

}  // namespace

void write_frame(uint8_t kind, std::string_view fields, std::string& out) {
  const auto size = static_cast<uint32_t>(fields.size());
  const uint64_t sum = sum_of(kind, fields);
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out += static_cast<char>(kind);
  out.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  out += fields;
}

void write(const Message& message, std::string& out) {
  std::string fields;
  Writer writer(fields);
  std::visit([&](const auto& m) { visit(writer, m); }, message);
  write_frame(static_cast<uint8_t>(message.index()), fields, out);
}

Result<std::optional<Message>> take(std::string_view& in, size_t limit) {
  uint32_t size = 0;
  uint64_t sum = 0;
  if (in.size() < sizeof size) return std::optional<Message>();
  std::memcpy(&size, in.data(), sizeof size);
  if (size > limit)
    return Error{Code::kInvalid,
                 fmt::format("a message has {} bytes; at most {} are taken", size, limit)};
  if (in.size() < kFrameHead + size) return std::optional<Message>();
  const auto kind = static_cast<uint8_t>(in[sizeof size]);
  std::memcpy(&sum, in.data() + sizeof size + 1, sizeof sum);
  const std::string_view fields = in.substr(kFrameHead, size);
  auto message = sum == sum_of(kind, fields) ? read(kind, fields) : std::nullopt;
  if (!message)
    return Error{Code::kInvalid,
                 fmt::format("a message of kind {} with {} bytes is malformed or was changed on "
                             "its way",
                             kind, size)};
  in.remove_prefix(kFrameHead + size);
  return message;
}

size_t lacking(std::string_view in) {
  uint32_t size = 0;
  if (in.size() >= kFrameHead) std::memcpy(&size, in.data(), sizeof size);
  const size_t whole = kFrameHead + size;
  return whole - std::min(whole, in.size());
}

Digest proof(std::string_view key, std::string_view side, const Digest& theirs,
             const Digest& ours) {
  std::string text(side);
  text.append(theirs.begin(), theirs.end());
  text.append(ours.begin(), ours.end());
  Digest digest{};
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const uint8_t*>(text.data()), text.size(), digest.data(), nullptr);
  return digest;
}

std::string memory_proof(std::string_view key, std::string_view what, const Digest& of_server,
                         const Digest& of_client) {
  const Digest digest = proof(key, fmt::format("memory {}", what), of_server, of_client);
  return {digest.begin(), digest.end()};
}

bool same(const Digest& a, const Digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Digest random_nonce() {
  Digest nonce{};
  SKIFF_CHECK(RAND_bytes(nonce.data(), static_cast<int>(nonce.size())) == 1);
  return nonce;
}

std::string difference(const Facts& here, const Facts& there, const SideNames& names) {
  for (size_t i = 0; i < std::max(here.size(), there.size()); ++i) {
    if (i >= here.size() || i >= there.size() || here[i].first != there[i].first)
      return fmt::format("the two sides compare {} and {} facts", here.size(), there.size());
    if (here[i].second != there[i].second)
      return fmt::format("{} is {} at {} and {} at {}", here[i].first, here[i].second, names.here,
                         escaped(there[i].second, kMaxShown), names.there);
  }
  return {};
}

}  // namespace skiff::peer
