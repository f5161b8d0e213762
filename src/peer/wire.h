// peer/wire.h -- the messages between an instance that has blocks and one that fetches them.
//
// The side that has the blocks listens and begins with Hello; the other answers with Login, and
// gets Welcome or Refused. Both prove that they know the secret, by an HMAC-SHA256 of both nonces,
// before anything is asked. Then come Open, Renew, Close, Read, Mapped and Taken one way, and
// Renew, Block, Here and Miss the other.
//
// Where both are processes of one machine and user, blocks need not cross the connection. Welcome
// names a socket of the machine (local_socket.h), to which the other side sends memory_proof() of
// "wanted"; it is answered with that of "given" and the file of the memory in which the blocks lie
// (shared_memory.h). After Mapped, reads are answered by Here instead of Block.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "kv/block_key.h"

namespace skiff::peer {

constexpr uint32_t kWireVersion = 4;
using Digest = std::array<uint8_t, 32>;
// Facts are what both sides must agree on, as names and values, in an order that both have.
using Facts = std::vector<std::pair<std::string, std::string>>;

struct Hello {
  uint32_t magic = 0x44504b53;  // "SKPD"
  uint32_t version = kWireVersion;
  Digest nonce{};
};
struct Login {
  Digest nonce{}, proof{};
  Facts facts;
};
struct Welcome {
  Digest proof{};
  uint32_t lease_ms = 0;  // silence of the connection after which its leases end
  std::string memory;     // name of the socket at which memory is given; empty: none is
};
struct Refused {
  std::string why;
};
// Asks to keep the blocks with these keys, those that come later included, until Close. If there is
// a prompt, its blocks shall be computed.
struct Open {
  uint64_t lease = 0;
  int32_t priority = 0;
  std::vector<kv::BlockKey> keys;
  std::vector<Token> prompt;
  std::string salt;
  std::vector<CacheExtra> extras;
};
struct Close {
  uint64_t lease = 0;
};
// Asks for a block of a lease, which is answered once it is there: by Block or Miss.
struct Read {
  uint64_t job = 0, lease = 0;
  kv::BlockKey key{};
};
// Says that the sender lives. The other side answers with another.
struct Renew {};
// Announces a block. Its bytes, whose number both sides know, follow the frame.
struct Block {
  uint64_t job = 0;
  kv::BlockKey key{};
  uint64_t low = 0, high = 0;  // XXH3-128 of the bytes
};
// Answers a Read whose block does not come.
struct Miss {
  uint64_t job = 0;
  uint8_t why = 0;  // a Loss
};
// Says that the memory of the blocks can be read.
struct Mapped {};
// Says where a block lies in that memory: at `place` times the bytes of a block. It stays there
// until Taken or the end of its lease.
struct Here {
  uint64_t job = 0;
  kv::BlockKey key{};
  uint64_t place = 0;
  uint64_t low = 0, high = 0;  // XXH3-128 of the bytes
};
// Says that the block that Here named is read no more.
struct Taken {
  uint64_t job = 0;
};

using Message = std::variant<Hello, Login, Welcome, Refused, Open, Close, Read, Renew, Block, Miss,
                             Mapped, Here, Taken>;

// Limits of a frame in bytes: before the login, and behind it.
constexpr size_t kMaxGreeting = 16 << 10, kMaxFrame = 8 << 20;

// Appends the message as a frame: the length of its fields (4 bytes), its kind (1 byte), an XXH3-64
// of all the rest (8 bytes), its fields. The sum finds what was changed on its way: a lease that is
// closed under another number would never end.
void write(const Message& message, std::string& out);
// Appends a frame with a right sum and any kind and fields, which take() need not understand.
void write_frame(uint8_t kind, std::string_view fields, std::string& out);

// Takes the frame at the beginning of `in` away and returns it, or nothing if it is not complete.
// Returns an error for bytes that write() does not make, and for more than `limit` of them. A frame
// costs no more memory than a few times its bytes.
Result<std::optional<Message>> take(std::string_view& in, size_t limit);
// Returns how many bytes the first frame of `in` lacks, as far as is known: those of its head,
// until that is there. A reader that asks for no more leaves alone what follows the frame.
size_t lacking(std::string_view in);

// Returns what a side that knows `key` answers to the nonce `theirs`, having sent `ours`; `side`,
// such as "prefill" and "decode", keeps the two answers apart.
Digest proof(std::string_view key, std::string_view side, const Digest& theirs, const Digest& ours);
// Returns what tells one connection's letters about memory from those of others: only its two sides
// know both nonces.
std::string memory_proof(std::string_view key, std::string_view what, const Digest& of_server,
                         const Digest& of_client);
// Compares in a time that does not depend on the bytes.
bool same(const Digest& a, const Digest& b);
Digest random_nonce();

// What messages call two sides whose facts are compared.
struct SideNames {
  std::string_view here = "the prefill instance", there = "the decode instance";
};
// Returns nothing if the facts agree, else one line that names the first that do not, with both
// values, and that a log can print.
std::string difference(const Facts& here, const Facts& there, const SideNames& names = {});

}  // namespace skiff::peer
