// peer/settings.h -- what an instance has to do with blocks of other instances, as a user sets it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace skiff::peer {

// kPrefill computes prompts and hands out their blocks; kDecode fetches them and goes on from
// there; kMixed does neither.
enum class Role : uint8_t { kMixed, kPrefill, kDecode };

struct Address {
  std::string host;  // numeric, or a name that is resolved at start-up
  int port = 0;
  bool operator==(const Address&) const = default;
};

struct Settings {
  Role role = Role::kMixed;
  std::string key;  // secret that both sides know; empty: only this machine is talked to
  // Processes of one machine and user pass blocks through memory that both have, if both sides say
  // so and the system allows it. Otherwise blocks go over TCP.
  bool shares_memory = true;
  // The prefill side has these.
  Address listen{"127.0.0.1", 0};  // 0: any free port
  double buffer_gb = 4;            // host memory for blocks that may be fetched
  double lease_seconds = 30;       // how long blocks are kept for a peer that is not heard of
  // The decode side has these.
  std::vector<Address> prefills;  // servers that compute prompts that come without an origin
  double wait_seconds = 20;       // longest time without a block before a prompt is computed here
};

// Why blocks that were to come from a peer are computed here instead.
enum class Loss : uint8_t {
  kMissing,  // the peer has no such block, or has it no more
  kFailed,   // the peer did not compute the prompt
  kLate,     // no block came in time
  kGone,     // the peer cannot be reached, or its connection ended
  kRefused,  // one of the two does not want the other: key, model, build
  kDamaged,  // the bytes are not what their checksum says
};
constexpr int kLosses = 6;
constexpr const char* kLossNames[kLosses] = {"missing", "failed",  "late",
                                             "gone",    "refused", "damaged"};

// Counters since the start, but for those that say "now".
struct Stats {
  uint64_t blocks = 0, bytes = 0;  // fetched from peers (decode), or sent to them (prefill)
  // Those of them that went through shared memory.
  uint64_t shared_blocks = 0, shared_bytes = 0;
  double seconds = 0;                 // decode: from the first byte of a block to its last
  uint64_t recomputed[kLosses] = {};  // decode: tokens, by Loss
  uint64_t prompts = 0;               // handed over to a prefill instance, or taken over from one
  int leases = 0;                     // now
  int connections = 0;                // now
  int port = 0;                       // prefill: that of the block server
};

}  // namespace skiff::peer
