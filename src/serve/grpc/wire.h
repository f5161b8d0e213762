// serve/grpc/wire.h -- the wire format of protocol buffers: the fields of one message, read without
// a copy and without memory of its own, and written.
//
// The messages of the server are few and flat, so no code is generated for them: what an untrusted
// message costs is then what it weighs.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace skiff::grpc {

enum class WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Use: while (reader.next()) { ... }; then reader.good() says whether the bytes were a message. The
// bytes outlive the reader and what it returns.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  // Goes to the next field. False at the end, and at bytes that are no field. Groups, which have
  // long been deprecated, are no fields.
  bool next();
  bool good() const { return good_; }
  int field() const { return field_; }
  WireType type() const { return type_; }
  uint64_t number() const { return number_; }        // the value of every type but kBytes
  std::string_view bytes() const { return bytes_; }  // the value of type kBytes
  bool is(int field, WireType type) const { return field_ == field && type_ == type; }

 private:
  bool fail();
  bool varint(uint64_t* out);
  bool fixed(size_t size, uint64_t* out);

  std::string_view rest_, bytes_;
  uint64_t number_ = 0;
  int field_ = 0;
  WireType type_ = WireType::kVarint;
  bool good_ = true;
};

// Append one field. Numbers are unsigned, which stands for int32 and int64 that are not negative,
// for bool and for enums.
void put_number(std::string& message, int field, uint64_t value);
void put_bytes(std::string& message, int field, std::string_view value);

}  // namespace skiff::grpc
