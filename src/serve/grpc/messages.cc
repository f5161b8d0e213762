#include "serve/grpc/messages.h"

#include <algorithm>

#include "base/log.h"
#include "base/utf8.h"
#include "serve/grpc/wire.h"

namespace skiff::grpc {
namespace {

constexpr std::string_view kIn = "IN", kOut = "OUT", kBytes = "BYTES";
constexpr size_t kMaxName = 256;
constexpr uint64_t kTypeString = 13;  // TYPE_STRING of Triton's DataType

std::string shown(std::string_view text) { return escaped(text, 64); }

// Keeps the first problem.
void refuse(InferRequest& request, std::string problem) {
  if (request.problem.empty()) request.problem = std::move(problem);
}

// These come back in answers. One that is too long does not.
void bound_name(const char* what, std::string_view& name, InferRequest& request) {
  if (name.size() <= kMaxName) return;
  refuse(request,
         fmt::format("{} has {} bytes; at most {} are allowed", what, name.size(), kMaxName));
  name = {};
}

// An InferParameter that is a bool; anything else is false.
bool bool_parameter(std::string_view message) {
  WireReader reader(message);
  bool value = false;
  while (reader.next())
    if (reader.is(1, WireType::kVarint)) value = reader.number() != 0;
  return value;
}

void read_parameter(std::string_view entry, InferRequest& request) {
  std::string_view key, value;
  WireReader reader(entry);
  while (reader.next()) {
    if (reader.is(1, WireType::kBytes)) key = reader.bytes();
    if (reader.is(2, WireType::kBytes)) value = reader.bytes();
  }
  if (!reader.good()) return refuse(request, "a parameter is no message");
  if (key == "triton_enable_empty_final_response") request.empty_final = bool_parameter(value);
}

// The elements of a shape, which come packed or one by one.
void read_shape(const WireReader& field, uint64_t* elements) {
  if (field.type() == WireType::kVarint) {
    *elements = field.number() == 1 ? *elements : 0;
    return;
  }
  // A packed list: each varint that is not the single byte 1 makes the shape another one.
  for (const char byte : field.bytes())
    if (byte != 1) *elements = 0;
}

void read_contents(std::string_view message, InferRequest& request) {
  WireReader reader(message);
  int count = 0;
  while (reader.next()) {
    if (!reader.is(8, WireType::kBytes))
      return refuse(request, "the input IN has typed contents that are no bytes_contents");
    request.object = reader.bytes();
    ++count;
  }
  if (!reader.good()) return refuse(request, "the contents of IN are no message");
  if (count > 1) return refuse(request, "the input IN has more than one element");
  request.typed = count == 1;
}

void read_input(std::string_view message, InferRequest& request) {
  std::string_view name, datatype;
  uint64_t elements = 1;
  WireReader reader(message);
  while (reader.next()) {
    if (reader.is(1, WireType::kBytes)) name = reader.bytes();
    if (reader.is(2, WireType::kBytes)) datatype = reader.bytes();
    if (reader.field() == 3) read_shape(reader, &elements);
    if (reader.is(5, WireType::kBytes)) read_contents(reader.bytes(), request);
  }
  if (!reader.good()) return refuse(request, "an input is no message");
  if (name != kIn)
    return refuse(request,
                  fmt::format("there is no input \"{}\"; the model's input is IN", shown(name)));
  if (datatype != kBytes)
    return refuse(request, fmt::format("the input IN has datatype \"{}\"; it must be BYTES",
                                       shown(datatype)));
  if (elements != 1) return refuse(request, "the input IN must have the shape [1]");
}

void read_output(std::string_view message, InferRequest& request) {
  WireReader reader(message);
  while (reader.next())
    if (reader.is(1, WireType::kBytes) && reader.bytes() != kOut)
      refuse(request, fmt::format("there is no output \"{}\"; the model's output is OUT",
                                  shown(reader.bytes())));
  if (!reader.good()) refuse(request, "an output is no message");
}

// One string behind its length, four bytes with the lowest first.
void read_raw(std::string_view raw, InferRequest& request) {
  constexpr size_t kPrefix = 4;
  uint32_t size = 0;
  for (size_t i = std::min(raw.size(), kPrefix); i-- > 0;)
    size = size << 8 | static_cast<uint8_t>(raw[i]);
  if (raw.size() < kPrefix || raw.size() - kPrefix != size)
    return refuse(request,
                  fmt::format("the raw contents of IN must be one string behind its length in 4 "
                              "bytes, but they are {} bytes",
                              raw.size()));
  request.object = raw.substr(kPrefix);
}

std::string raw_string(std::string_view text) {
  std::string raw;
  raw.reserve(4 + text.size());
  for (int shift = 0; shift < 32; shift += 8) raw += static_cast<char>(text.size() >> shift & 0xff);
  return raw += text;
}

// One element of the shape [1].
void put_shape(std::string& message, int field) {
  put_bytes(message, field, std::string_view("\1", 1));
}

std::string tensor_metadata(std::string_view name) {
  std::string message;
  put_bytes(message, 1, name);
  put_bytes(message, 2, kBytes);
  put_shape(message, 3);
  return message;
}

}  // namespace

Result<ModelName> read_model_name(std::string_view message) {
  ModelName model;
  WireReader reader(message);
  while (reader.next()) {
    if (reader.is(1, WireType::kBytes)) model.name = reader.bytes();
    if (reader.is(2, WireType::kBytes)) model.version = reader.bytes();
  }
  if (!reader.good()) return Error{Code::kInvalid, "the request is no message"};
  return model;
}

InferRequest read_infer_request(std::string_view message) {
  InferRequest request;
  std::string_view raw;
  int inputs = 0, raws = 0;
  WireReader reader(message);
  while (reader.next()) {
    if (reader.type() != WireType::kBytes) continue;
    const std::string_view bytes = reader.bytes();
    switch (reader.field()) {
      case 1:
        request.model.name = bytes;
        break;
      case 2:
        request.model.version = bytes;
        break;
      case 3:
        request.id = bytes;
        break;
      case 4:
        read_parameter(bytes, request);
        break;
      case 5:
        if (++inputs == 1) read_input(bytes, request);
        break;
      case 6:
        read_output(bytes, request);
        break;
      case 7:
        ++raws;
        raw = bytes;
        break;
      default:
        break;
    }
  }
  if (!reader.good()) refuse(request, "the request is no message");
  bound_name("id", request.id, request);
  bound_name("model_name", request.model.name, request);
  if (inputs != 1)
    refuse(request, fmt::format("the request has {} inputs; the model has one, IN", inputs));
  if (raws > 1) refuse(request, "the request has raw contents for more than one input");
  if (raws == 1 && request.typed)
    refuse(request, "the input IN has both typed and raw contents; send one of them");
  if (raws == 0 && !request.typed) refuse(request, "the input IN has no contents");
  if (raws == 1 && request.problem.empty()) read_raw(raw, request);
  return request;
}

std::string infer_response(const InferAnswer& answer) {
  std::string message;
  put_bytes(message, 1, answer.model);
  put_bytes(message, 2, kModelVersion);
  put_bytes(message, 3, answer.id);
  if (answer.final) {
    std::string value, entry;
    put_number(value, 1, *answer.final ? 1 : 0);
    put_bytes(entry, 1, "triton_final_response");
    put_bytes(entry, 2, value);
    put_bytes(message, 4, entry);
  }
  if (!answer.object) return message;
  std::string output = tensor_metadata(kOut);
  if (answer.typed) {
    std::string contents;
    put_bytes(contents, 8, *answer.object);
    put_bytes(output, 5, contents);
  }
  put_bytes(message, 5, output);
  if (!answer.typed) put_bytes(message, 6, raw_string(*answer.object));
  return message;
}

std::string stream_response(std::string_view infer_response) {
  std::string message;
  put_bytes(message, 2, infer_response);
  return message;
}

std::string stream_error(std::string_view model, std::string_view id, std::string_view why) {
  std::string message;
  put_bytes(message, 1, utf8_sanitized(why));  // clients refuse a string that is no UTF-8
  put_bytes(message, 2, infer_response({.model = model, .id = id, .final = true}));
  return message;
}

std::string flag_response(bool value) {
  std::string message;
  put_number(message, 1, value ? 1 : 0);
  return message;
}

std::string server_metadata(std::string_view version) {
  std::string message;
  put_bytes(message, 1, "skiff");
  put_bytes(message, 2, version);
  return message;
}

std::string model_metadata(std::string_view model) {
  std::string message;
  put_bytes(message, 1, model);
  put_bytes(message, 2, kModelVersion);
  put_bytes(message, 3, "skiff");
  put_bytes(message, 4, tensor_metadata(kIn));
  put_bytes(message, 5, tensor_metadata(kOut));
  return message;
}

std::string model_config(std::string_view model) {
  std::string input, output, policy, config, message;
  put_bytes(input, 1, kIn);
  put_number(input, 2, kTypeString);
  put_shape(input, 4);
  put_bytes(output, 1, kOut);
  put_number(output, 2, kTypeString);
  put_shape(output, 3);
  put_number(policy, 1, 1);  // decoupled
  put_bytes(config, 1, model);
  put_bytes(config, 2, "skiff");
  put_number(config, 4, 0);  // max_batch_size
  put_bytes(config, 5, input);
  put_bytes(config, 6, output);
  put_bytes(config, 17, "skiff");
  put_bytes(config, 19, policy);
  put_bytes(message, 1, config);
  return message;
}

}  // namespace skiff::grpc
