// libFuzzer target: any bytes as a message of an inbox and as a request of the shared queue.
// Reading never crashes, and what was read is written as the same bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "serve/http/cache_part.h"
#include "serve/queue/messages.h"

using namespace skiff::queue;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto message = read_message(bytes)) {
    const auto* piece = std::get_if<Piece>(&*message);
    if (piece) SKIFF_CHECK(write_piece(*piece) == bytes);
    if (piece) return 0;
    // A number may be spelled with zeros in front.
    const Note& note = std::get<Note>(*message);
    const auto again = read_message(write_note(note));
    SKIFF_CHECK(again && std::get<Note>(*again).lease == note.lease);
  }
  if (const auto request = read_request(bytes, 1 << 20)) {
    const auto again = read_request(
        write_request(*request, std::string(request->header(skiff::http::kCachePart))), 1 << 20);
    SKIFF_CHECK(again && again->body == request->body && again->path == request->path);
  }
  return 0;
}
