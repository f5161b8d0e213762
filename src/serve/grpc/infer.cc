// ModelInfer and ModelStreamInfer: requests of PaddleNLP's protocol in the input IN, their objects
// in the output OUT.
//
// What is wrong with the object in IN, or ends its generation, is answered in OUT as PaddleNLP's
// server does; what is wrong around it is the stream's error_message. The one answer of ModelInfer
// has no such place: there every failure is the call's status.
#include <mutex>
#include <vector>

#include "base/json_owner.h"
#include "serve/grpc/messages.h"
#include "serve/grpc/methods.h"
#include "serve/grpc/model_names.h"
#include "serve/openai/body.h"
#include "serve/paddle/generation.h"

namespace skiff::grpc {
namespace {

// What an answer needs of its request.
struct RequestFacts {
  std::string model, id;
  bool typed = false, empty_final = false;
};

class Inference : public Handler {
 public:
  Inference(Shared& shared, Exchange& exchange, bool streams)
      : shared_(shared), exchange_(exchange), streams_(streams) {}

  void message(std::string bytes) override;
  void half_closed() override;
  void cancelled() override;

  void answer(const RequestFacts& facts, std::string_view object, bool last);
  void fail(const RequestFacts& facts, std::string_view object, const http::ApiError& error);

 private:
  void refuse(const RequestFacts& facts, StatusCode code, const std::string& why);
  void begin(service::ProtocolContext& protocol, RequestFacts facts, std::string_view object);
  void close_one();

  Shared& shared_;
  Exchange& exchange_;
  const bool streams_;

  std::mutex mutex_;  // guards the rest
  std::vector<std::weak_ptr<paddle::Generation>> generations_;
  int open_ = 0;  // requests whose answers are not complete
  bool half_closed_ = false, cancelled_ = false;
};

// Counts one request as open for its life.
class InferOutlet : public paddle::Outlet {
 public:
  // `exchange` keeps `inference` alive.
  InferOutlet(std::shared_ptr<Exchange> exchange, Inference& inference, Shared& shared,
              RequestFacts facts)
      : exchange_(std::move(exchange)),
        inference_(inference),
        shared_(shared),
        facts_(std::move(facts)) {
    ++shared_.open_requests;
  }
  ~InferOutlet() override { --shared_.open_requests; }
  InferOutlet(const InferOutlet&) = delete;

  void write(std::string object, bool last) override {
    inference_.answer(facts_, "[" + object + "]", last);
  }
  void fail(std::string object, const http::ApiError& error) override {
    inference_.fail(facts_, object, error);
  }

 private:
  const std::shared_ptr<Exchange> exchange_;
  Inference& inference_;
  Shared& shared_;
  const RequestFacts facts_;
};

void Inference::message(std::string bytes) {
  const InferRequest request = read_infer_request(bytes);
  RequestFacts facts{.model = std::string(request.model.name),
                     .id = std::string(request.id),
                     .typed = request.typed,
                     .empty_final = request.empty_final};
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) return;
    ++open_;
  }
  const auto protocol = shared_.backend.protocol();
  if (!protocol) return refuse(facts, StatusCode::kUnavailable, shared_.backend.unready());
  if (const auto unknown = refuse_model(*protocol, request.model))
    return refuse(facts, StatusCode::kNotFound, *unknown);
  if (!request.problem.empty()) return refuse(facts, StatusCode::kInvalidArgument, request.problem);
  begin(*protocol, std::move(facts), request.object);
}

// Refuses a call that could not be read as a request of PaddleNLP's protocol.
void Inference::refuse(const RequestFacts& facts, StatusCode code, const std::string& why) {
  if (streams_)
    exchange_.send(stream_error(facts.model, facts.id, why));
  else
    exchange_.finish(code, why);
  close_one();
}

void Inference::begin(service::ProtocolContext& protocol, RequestFacts facts,
                      std::string_view object) {
  const auto refused = [&](const std::string& req_id, const http::ApiError& error) {
    fail(facts, paddle::error_object(req_id, error.message, paddle::error_code(error), false),
         error);
  };
  auto admitted = protocol.admission.admit();  // before the object is parsed
  if (const auto* full = std::get_if<service::AdmissionRefusal>(&admitted))
    return refused(facts.id, openai::admission_error(*full));
  auto json = parse_ordered_json(object, {.max_bytes = object.size()});
  if (!json) return refused(facts.id, http::api_error(400, json.error().what));
  const JsonOwner<OrderedJson> body(std::move(*json));
  const bool one = (*body).is_array() && (*body).size() == 1;
  if ((*body).is_array() && !one)
    return refused(facts.id, http::api_error(400, fmt::format("request data should not be empty "
                                                              "and query num {} should be 1",
                                                              (*body).size())));
  paddle::Carrier carrier{.request_id = facts.id.empty() ? http::sane_request_id("") : facts.id,
                          .cache_salt = {},
                          .last_only = !streams_};
  carrier.route = streams_ ? "/inference.GRPCInferenceService/ModelStreamInfer"
                           : "/inference.GRPCInferenceService/ModelInfer";
  if (!protocol.config.policy.shared_cache)
    carrier.cache_salt = shared_.backend.keys.cache_salt(exchange_.head());
  auto prepared =
      paddle::prepare_generation(protocol, shared_.backend.paddle, one ? (*body).front() : *body,
                                 carrier, std::move(std::get<service::Ticket>(admitted)));
  if (const auto* refusal = std::get_if<paddle::Refused>(&prepared))
    return refused(refusal->req_id, refusal->error);
  const auto& generation = std::get<std::shared_ptr<paddle::Generation>>(prepared);
  {
    std::lock_guard lock(mutex_);
    std::erase_if(generations_, [](const auto& weak) { return weak.expired(); });
    generations_.push_back(generation);
  }
  generation->start(
      std::make_shared<InferOutlet>(exchange_.share(), *this, shared_, std::move(facts)));
  bool cancelled;
  {
    std::lock_guard lock(mutex_);
    cancelled = cancelled_;
  }
  if (cancelled) generation->cancel();
}

void Inference::answer(const RequestFacts& facts, std::string_view object, bool last) {
  const bool final = last && !facts.empty_final;
  const std::string response =
      infer_response({.model = facts.model,
                      .id = facts.id,
                      .object = object,
                      .typed = facts.typed,
                      .final = streams_ ? std::optional(final) : std::nullopt});
  exchange_.send(streams_ ? stream_response(response) : response);
  if (!last) return;
  if (streams_ && facts.empty_final)
    exchange_.send(
        stream_response(infer_response({.model = facts.model, .id = facts.id, .final = true})));
  if (!streams_) exchange_.finish(StatusCode::kOk, {});
  close_one();
}

void Inference::fail(const RequestFacts& facts, std::string_view object,
                     const http::ApiError& error) {
  if (streams_) return answer(facts, object, /*last=*/true);
  exchange_.finish(code_of_http(error.status), error.message);
  close_one();
}

void Inference::close_one() {
  bool over;
  {
    std::lock_guard lock(mutex_);
    over = --open_ == 0 && half_closed_;
  }
  if (over && streams_) exchange_.finish(StatusCode::kOk, {});
}

void Inference::half_closed() {
  bool over;
  {
    std::lock_guard lock(mutex_);
    half_closed_ = true;
    over = open_ == 0;
  }
  if (over && streams_) exchange_.finish(StatusCode::kOk, {});
}

void Inference::cancelled() {
  std::vector<std::weak_ptr<paddle::Generation>> generations;
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    generations = std::move(generations_);
  }
  for (const auto& weak : generations)
    if (const auto generation = weak.lock()) generation->cancel();
}

}  // namespace

std::unique_ptr<Handler> model_infer(Shared& shared, Exchange& exchange) {
  return std::make_unique<Inference>(shared, exchange, /*streams=*/false);
}

std::unique_ptr<Handler> model_stream_infer(Shared& shared, Exchange& exchange) {
  return std::make_unique<Inference>(shared, exchange, /*streams=*/true);
}

}  // namespace skiff::grpc
