#include "serve/grpc/wire.h"

namespace skiff::grpc {
namespace {

void put_varint(std::string& message, uint64_t value) {
  for (; value >= 0x80; value >>= 7) message += static_cast<char>(0x80 | (value & 0x7f));
  message += static_cast<char>(value);
}

void put_tag(std::string& message, int field, WireType type) {
  put_varint(message, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
}

}  // namespace

bool WireReader::fail() {
  rest_ = {};
  good_ = false;
  return false;
}

bool WireReader::varint(uint64_t* out) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *out = value;
      return true;
    }
  }
  return false;
}

bool WireReader::fixed(size_t size, uint64_t* out) {
  if (rest_.size() < size) return false;
  *out = 0;
  for (size_t i = size; i-- > 0;) *out = *out << 8 | static_cast<uint8_t>(rest_[i]);
  rest_.remove_prefix(size);
  return true;
}

bool WireReader::next() {
  constexpr uint64_t kMaxField = (1 << 29) - 1;
  if (rest_.empty()) return false;
  uint64_t tag = 0;
  if (!varint(&tag) || tag >> 3 == 0 || tag >> 3 > kMaxField) return fail();
  field_ = static_cast<int>(tag >> 3);
  type_ = static_cast<WireType>(tag & 7);
  switch (type_) {
    case WireType::kVarint:
      return varint(&number_) || fail();
    case WireType::kFixed64:
      return fixed(8, &number_) || fail();
    case WireType::kFixed32:
      return fixed(4, &number_) || fail();
    case WireType::kBytes: {
      uint64_t size = 0;
      if (!varint(&size) || size > rest_.size()) return fail();
      bytes_ = rest_.substr(0, size);
      rest_.remove_prefix(size);
      return true;
    }
  }
  return fail();
}

void put_number(std::string& message, int field, uint64_t value) {
  put_tag(message, field, WireType::kVarint);
  put_varint(message, value);
}

void put_bytes(std::string& message, int field, std::string_view value) {
  put_tag(message, field, WireType::kBytes);
  put_varint(message, value.size());
  message += value;
}

}  // namespace skiff::grpc
