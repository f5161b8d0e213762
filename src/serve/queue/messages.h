// serve/queue/messages.h -- what instances tell each other through the shared queue, as bytes: a
// request that waits for an instance with room, and notes in an instance's inbox.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "serve/http/server.h"

namespace skiff::queue {

// Bounds on what is read. Names are ids of requests, methods, paths and media types.
constexpr size_t kMaxName = 4096, kMaxHeader = 16u << 10;
constexpr int kMaxHeaders = 64;
// The most bytes of an answer in one piece.
constexpr size_t kMaxPiece = 1u << 20;

// One handing out of a request. The number grows each time the request is handed out or taken back,
// so that whoever held it before is told from whoever holds it now.
struct Lease {
  std::string id;
  int64_t number = 0;
  bool operator==(const Lease&) const = default;
};

// A part of the answer to a request, from the instance that computes it to the one at which the
// request came in. Pieces of one lease are numbered from 0.
struct Piece {
  Lease lease;
  uint32_t index = 0;
  bool begins = false;      // `head` is set, with an empty body
  bool streams = false;     // with `begins`: the client gets each piece at once
  bool ends = false;        // the last one
  http::HttpResponse head;  // status, media type and headers
  std::string bytes;        // a part of the body, at most kMaxPiece
};

// A message about a request that holds nothing of its answer.
struct Note {
  enum class Kind : char {
    kRing = 'R',   // a request waits; `lease` is empty
    kTaken = 'T',  // an instance computes this request of the inbox's owner
    kBack = 'B',   // that instance had no room after all: the request waits again
    kStop = 'S',   // nobody awaits this answer any more
  };
  Kind kind = Kind::kRing;
  Lease lease;
};

using Message = std::variant<Note, Piece>;

// `cache_part` names the part of the prefix cache that the request may use. Of its headers only
// those of traces go along: keys stay where they were checked.
std::string write_request(const http::HttpRequest& request, const std::string& cache_part);
std::string write_piece(const Piece& piece);
// A note as a script in Redis writes it, too: kind, number, a space, id.
std::string write_note(const Note& note);

// Both read untrusted bytes: they return kInvalid, with the reason, for what is cut, malformed, of
// another version or beyond a bound, and take no more memory than the bytes do.
Result<http::HttpRequest> read_request(std::string_view bytes, size_t max_body);
Result<Message> read_message(std::string_view bytes);

}  // namespace skiff::queue
