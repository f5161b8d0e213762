#include "text/sentencepiece_check.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "text/charsmap.h"

namespace skiff::text {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 21;

Status broken(std::string_view what) {
  return Error{Code::kInvalid, fmt::format("not a valid SentencePiece model: {}", what)};
}

// One field of a protocol buffer message: `bytes` for wire types 1, 2 and 5, else `value`.
struct Field {
  uint64_t number = 0;
  int wire = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }

  // Returns nullopt if the bytes are not a message.
  std::optional<Field> next() {
    Field field;
    uint64_t tag = 0;
    if (!varint(&tag) || tag >> 3 == 0 || tag >> 32 != 0) return std::nullopt;
    field.number = tag >> 3;
    field.wire = static_cast<int>(tag & 7);
    uint64_t length = 0;
    switch (field.wire) {
      case 0:
        return varint(&field.value) ? std::optional(field) : std::nullopt;
      case 1:
        length = 8;
        break;
      case 2:
        if (!varint(&length)) return std::nullopt;
        break;
      case 5:
        length = 4;
        break;
      default:
        return std::nullopt;  // no SentencePiece model has groups
    }
    if (length > rest_.size()) return std::nullopt;
    field.bytes = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return field;
  }

 private:
  bool varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      *value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  std::string_view rest_;
};

Status check_normalizer(std::string_view bytes) {
  for (Message message(bytes); !message.done();) {
    const auto field = message.next();
    if (!field) return broken("normalizer_spec is cut short");
    if (field->number == 2 && !is_sound_charsmap(field->bytes))
      return broken("precompiled_charsmap is damaged");
  }
  return ok();
}

Status check_piece(std::string_view bytes) {
  for (Message message(bytes); !message.done();) {
    const auto field = message.next();
    if (!field) return broken("a piece is cut short");
    if (field->number == 1 && field->bytes.find('\0') != field->bytes.npos)
      return broken("a piece holds a NUL");
    if (field->number == 2) {
      float score = 0;
      if (field->wire != 5) return broken("a score is not a number");
      std::memcpy(&score, field->bytes.data(), 4);
      if (!std::isfinite(score)) return broken("a score is not finite");
    }
  }
  return ok();
}

}  // namespace

Status check_sentencepiece_model(std::string_view bytes) {
  size_t pieces = 0;
  for (Message message(bytes); !message.done();) {
    const auto field = message.next();
    if (!field) return broken("damaged or cut short");
    if (field->wire != 2) continue;
    Status status = ok();
    if (field->number == 1) status = check_piece(field->bytes);
    if (field->number == 3 || field->number == 5) status = check_normalizer(field->bytes);
    if (!status) return status;
    if (field->number == 1 && ++pieces > kMaxPieces) return broken("too many pieces");
  }
  return pieces == 0 ? broken("it has no pieces") : ok();
}

}  // namespace skiff::text
