#include "serve/paddle/generation.h"

#include "serve/openai/body.h"
#include "serve/openai/failures.h"

namespace skiff::paddle {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

// 200 stands for a refusal in PaddleNLP's protocol, and clients only ask whether it is 0.
int error_code(const http::ApiError& error) { return error.status < 500 ? 200 : 500; }

Generation::Generation(service::ProtocolContext& context, const PaddleCall& call, ReplyFacts facts,
                       service::Prepared prepared, service::Ticket ticket)
    : context_(context.shared_from_this()),
      req_id_(call.req_id),
      token_seconds_(call.token_seconds),
      streams_(call.stream),
      http_(facts.error_fields),
      usage_(call.return_usage),
      prepared_(std::move(prepared)),
      writer_(std::move(facts)),
      ticket_(std::move(ticket)),
      last_token_(Clock::now()) {}

void Generation::start(std::shared_ptr<Outlet> outlet) {
  {
    std::lock_guard lock(mutex_);
    outlet_ = std::move(outlet);
  }
  context_->generations.add(shared_from_this());
  service::Prepared prepared = std::move(*prepared_);
  prepared_.reset();
  const service::RequestId request = context_->service.start(
      std::move(prepared),
      [self = shared_from_this()](const service::Reply& reply) { self->take(reply); });
  bool cancelled;
  {
    std::lock_guard lock(mutex_);
    request_ = request;
    cancelled = done_;
  }
  if (cancelled) context_->service.cancel(request);
}

void Generation::take(const service::Reply& reply) {
  std::lock_guard lock(mutex_);
  if (done_) return;
  last_token_ = Clock::now();
  if (reply.finish == Finish::kExhausted || reply.finish == Finish::kCancelled)
    return fail(openai::why_ended(*context_, reply));
  const bool last = reply.finish != Finish::kNone;
  if (!streams_) {
    writer_.gather(reply);
    if (last) outlet_->write(writer_.whole(usage_), true);
  } else {
    std::vector<std::string> objects = writer_.pieces(reply);
    for (size_t i = 0; i < objects.size(); ++i)
      outlet_->write(std::move(objects[i]), last && i + 1 == objects.size());
  }
  if (last) end();
}

void Generation::end() {
  done_ = true;
  ticket_.release();
  outlet_.reset();
}

void Generation::fail(const http::ApiError& error) {
  if (outlet_)
    outlet_->fail(error_object(req_id_, error.message, error_code(error), http_ && !streams_),
                  error);
  end();
}

void Generation::cancel() {
  std::optional<service::RequestId> request;
  {
    std::lock_guard lock(mutex_);
    if (done_) return;
    end();
    request = request_;
  }
  if (request) context_->service.cancel(*request);
}

// A stream of JSON lines has no place for signs of life; what is looked at is the wait for a token.
void Generation::tick() {
  std::optional<service::RequestId> request;
  {
    std::lock_guard lock(mutex_);
    const std::chrono::duration<double> silent = Clock::now() - last_token_;
    if (done_ || silent.count() < token_seconds_) return;
    fail(http::api_error(
        504, fmt::format("no token came for {} s, which is the request's timeout; ask for more "
                         "with the field `timeout`, or again when the server has less to do",
                         token_seconds_)));
    request = request_;
  }
  if (request) context_->service.cancel(*request);
}

void Generation::cut_off(service::CutOff why) {
  std::optional<service::RequestId> request;
  {
    std::lock_guard lock(mutex_);
    if (done_) return;
    fail(openai::why_cut_off(why));
    request = request_;
  }
  if (request) context_->service.cancel(*request);
}

namespace {

std::optional<http::ApiError> check(const service::ProtocolContext& context,
                                    const PaddleCall& call) {
  if (auto error = openai::check_unknown(context.config, call.unknown_fields)) return error;
  if (call.model == "model") return std::nullopt;  // its name in PaddleNLP's server
  return openai::check_model(context.admission, call.model);
}

}  // namespace

std::variant<std::shared_ptr<Generation>, Refused> prepare_generation(
    service::ProtocolContext& context, const PaddleConfig& config, const OrderedJson& object,
    const Carrier& carrier, service::Ticket ticket) {
  const auto received = std::chrono::system_clock::now();
  auto call = parse_paddle_call(object, carrier.request_id, config);
  if (!call) {
    const auto id = object.is_object() ? object.find("req_id") : object.end();
    const bool named = object.is_object() && id != object.end() && id->is_string();
    return Refused{named ? id->get<std::string>() : carrier.request_id,
                   http::api_error(400, call.error().what)};
  }
  if (auto error = check(context, *call)) return Refused{call->req_id, std::move(*error)};
  if (!carrier.http) call->stream = true;
  call->request.streamed = call->stream;
  call->request.cache.salt = carrier.cache_salt;
  call->request.replica = carrier.replica;
  auto prepared = context.service.prepare(std::move(call->request));
  if (!prepared) return Refused{call->req_id, http::api_error(prepared.error(), "messages")};
  if (auto refused = context.admission.check_queue({&*prepared, 1}))
    return Refused{call->req_id, openai::admission_error(*refused)};
  prepared->tag = std::make_shared<const service::RequestTag>(
      service::RequestTag{.id = call->req_id,
                          .route = carrier.route,
                          .operation = "chat",
                          .model = context.config.model_names.front(),
                          .serial = carrier.serial,
                          .traceparent = carrier.traceparent,
                          .streamed = call->stream});
  ReplyFacts facts{
      .req_id = call->req_id,
      .seed = static_cast<int64_t>(prepared->params.seed),
      .return_all_tokens = call->return_all_tokens,
      .last_only = carrier.last_only || call->return_all_tokens || config.disable_streaming,
      .benchmark = call->benchmark,
      .error_fields = carrier.http,
      .received = received,
      .prepared = std::chrono::system_clock::now()};
  return std::make_shared<Generation>(context, *call, std::move(facts), std::move(*prepared),
                                      std::move(ticket));
}

}  // namespace skiff::paddle
