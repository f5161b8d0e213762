// Any bytes as a message of the gRPC port are read or refused without a crash; what is read lies
// inside of them, and a message costs no more than it weighs.
#include "base/check.h"
#include "serve/grpc/messages.h"
#include "serve/grpc/wire.h"

namespace {

void inside(std::string_view part, std::string_view whole) {
  SKIFF_CHECK(part.empty() || (part.data() >= whole.data() &&
                               part.data() + part.size() <= whole.data() + whole.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff::grpc;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto model = read_model_name(bytes)) {
    inside(model->name, bytes);
    inside(model->version, bytes);
  }
  const InferRequest request = read_infer_request(bytes);
  for (const std::string_view part : {request.model.name, request.id, request.object})
    inside(part, bytes);
  const std::string answer = infer_response(
      {.model = request.model.name, .id = request.id, .object = request.object, .final = true});
  WireReader reader(answer);
  while (reader.next()) {
  }
  SKIFF_CHECK(reader.good());
  return 0;
}
