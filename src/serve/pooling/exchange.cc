#include "serve/pooling/exchange.h"

#include <cmath>
#include <ctime>

#include "base/log.h"
#include "serve/openai/body.h"
#include "serve/openai/failures.h"
#include "serve/pooling/prompts.h"

namespace skiff::pooling {
namespace {

// Larger replies, in bytes, are written on a worker, because all replies wait for the output
// thread.
constexpr size_t kLargeReply = 1 << 20;
constexpr size_t kFloatSize = 14;  // approximate bytes of JSON
// Most numbers in one reply: 2048 embeddings of 4096.
constexpr size_t kMaxFloats = size_t{1} << 23;

// The service's sink keeps it alive. Thread-safe.
class Exchange : public service::OpenGeneration, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(service::ProtocolContext& context, const RouteKind& kind, PoolingCall call,
           std::string id, std::shared_ptr<http::HttpReply> reply, service::Ticket ticket)
      : context_(context.shared_from_this()),
        kind_(kind),
        call_(std::move(call)),
        envelope_{.id = std::move(id),
                  .model = openai::model_of(context, call_.model),
                  .created = std::time(nullptr)},
        reply_(std::move(reply)),
        ticket_(std::move(ticket)) {}

  void start(std::vector<service::Prepared> prompts);
  void tick() override {}
  void cut_off(service::CutOff why) override;

 private:
  const service::PooledModel& model() const { return *context_->service.pooled_model(); }
  void finish(service::PooledAnswer answer);
  void send(service::PooledAnswer answer);
  Answer answer_of(service::PooledAnswer pooled) const;
  std::vector<float> scores_of(const std::vector<std::vector<float>>& vectors) const;
  void refuse(const http::ApiError& error);

  const std::shared_ptr<service::ProtocolContext> context_;
  const RouteKind& kind_;
  const PoolingCall call_;
  const Envelope envelope_;
  const std::shared_ptr<http::HttpReply> reply_;
  std::mutex mutex_;  // guards the rest
  service::Ticket ticket_;
  std::shared_ptr<service::PooledBatch> batch_;
  bool done_ = false;
};

void Exchange::start(std::vector<service::Prepared> prompts) {
  auto batch = std::make_shared<service::PooledBatch>(
      context_->service, [self = shared_from_this()](service::PooledAnswer answer) {
        self->finish(std::move(answer));
      });
  {
    std::lock_guard lock(mutex_);
    batch_ = batch;
  }
  context_->generations.add(shared_from_this());
  try {
    batch->start(std::move(prompts));
  } catch (...) {
    batch->cancel();  // the sequences that were started have no reader
    throw;
  }
  reply_->on_close([weak = std::weak_ptr(batch), self = weak_from_this()] {
    if (const auto open = weak.lock()) open->cancel();
    if (const auto exchange = self.lock()) {
      std::lock_guard lock(exchange->mutex_);
      exchange->ticket_.release();
    }
  });
}

void Exchange::refuse(const http::ApiError& error) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(done_, true)) return;
    ticket_.release();
  }
  reply_->send(kind_.refusal(error));
}

void Exchange::cut_off(service::CutOff why) {
  std::shared_ptr<service::PooledBatch> batch;
  {
    std::lock_guard lock(mutex_);
    batch = batch_;
  }
  if (batch) batch->cancel();
  refuse(openai::why_cut_off(why));
}

void Exchange::finish(service::PooledAnswer answer) {
  if (answer.failure) return refuse(openai::why_ended(*context_, *answer.failure));
  size_t floats = 0, text = 0;
  for (const auto& vector : answer.vectors) floats += vector.size();
  for (const std::string& document : call_.documents) text += document.size();
  if (floats * kFloatSize + text <= kLargeReply) return send(std::move(answer));
  auto held = std::make_shared<service::PooledAnswer>(std::move(answer));
  reply_->on_worker([self = shared_from_this(), held] {
    try {
      self->send(std::move(*held));
    } catch (const std::exception& e) {
      spdlog::error("a reply could not be written: {}", escaped(e.what()));
      self->refuse(http::api_error(500, "internal error"));
    }
  });
}

void Exchange::send(service::PooledAnswer pooled) {
  for (const auto& vector : pooled.vectors)
    for (const float x : vector)
      if (!std::isfinite(x))
        return refuse(http::api_error(500, "the model gave a number that is not finite"));
  http::HttpResponse response;
  kind_.write(call_, answer_of(std::move(pooled)), model(), envelope_, response.body);
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(done_, true)) return;
    ticket_.release();
  }
  reply_->send(std::move(response));
}

std::vector<float> Exchange::scores_of(const std::vector<std::vector<float>>& vectors) const {
  std::vector<float> scores;
  const size_t queries = call_.queries.size();
  for (size_t i = 0; i < call_.documents.size(); ++i)
    scores.push_back(
        model().task == service::PooledModel::kEmbed
            ? service::cosine(vectors[queries > 1 ? i : 0], vectors[queries + i])
            : service::pair_score(vectors[i], call_.activation.value_or(model().activation)));
  return scores;
}

Answer Exchange::answer_of(service::PooledAnswer pooled) const {
  Answer answer{.vectors = {}, .scores = {}, .usage = pooled.usage};
  if (call_.documents.empty())
    answer.vectors = std::move(pooled.vectors);
  else
    answer.scores = scores_of(pooled.vectors);
  return answer;
}

// Why the service has no such route, as an error; nothing if it has.
std::optional<http::ApiError> refuse_model(const service::PooledModel* model,
                                           const RouteKind& kind) {
  const std::string why =
      model ? kind.refuse(*model)
            : "this server's model generates text; start it with --runner pooling --convert embed "
              "for embeddings, or --convert classify for scores";
  if (why.empty()) return std::nullopt;
  http::ApiError error = http::api_error(400, why);
  error.param = "model";
  error.code = "unsupported_value";
  return error;
}

std::optional<http::ApiError> check_size(const std::vector<service::Prepared>& prompts,
                                         const service::PooledModel& model, const RouteKind& kind) {
  const size_t most = kMaxFloats / static_cast<size_t>(std::max(model.width, 1));
  if (prompts.size() <= std::min(most, kMaxPrompts + 1)) return std::nullopt;
  http::ApiError error =
      http::api_error(400, fmt::format("there are {} texts; a reply holds at most {} results of {} "
                                       "numbers each: send them in parts",
                                       prompts.size(), std::min(most, kMaxPrompts), model.width));
  error.param = kind.input;
  return error;
}

// Admits and parses the request, starts its prompts, and answers once all are pooled.
void answer(service::ProtocolContext& context, const http::ApiKeys& keys, const RouteKind& kind,
            const http::HttpRequest& request, std::shared_ptr<http::HttpReply> reply) {
  const auto refuse = [&](const http::ApiError& error) { reply->send(kind.refusal(error)); };
  auto admitted = context.admission.admit();  // before the request's body is parsed
  if (const auto* refused = std::get_if<service::AdmissionRefusal>(&admitted))
    return refuse(openai::admission_error(*refused));
  const service::PooledModel* model = context.service.pooled_model();
  if (auto error = refuse_model(model, kind)) return refuse(*error);
  const auto json = openai::read_body(request);
  if (const auto* error = std::get_if<http::ApiError>(&json)) return refuse(*error);
  auto call = parse_call(*std::get<JsonOwner<OrderedJson>>(json), kind);
  if (!call) return refuse(http::api_error(call.error(), kind.input));
  if (auto error = openai::check_unknown(context.config, call->unknown_fields))
    return refuse(*error);
  if (auto error = openai::check_model(context.admission, call->model)) return refuse(*error);
  if (auto error = openai::check_policy(context.config.policy, call->request))
    return refuse(*error);
  if (const Status fits = service::check_dimensions(*model, call->dimensions); !fits)
    return refuse(http::api_error(fits.error(), kind.input));
  if (!context.config.policy.shared_cache)
    call->request.cache.salt.insert(0, keys.cache_salt(request));
  call->request.replica = request.replica;
  auto inputs = prompts_of(*call, *model, context.service);
  if (!inputs) return refuse(http::api_error(inputs.error(), kind.input));
  auto prompts = context.service.prepare_all(call->request, std::move(*inputs));
  if (!prompts) return refuse(http::api_error(prompts.error(), kind.input));
  if (auto error = check_size(*prompts, *model, kind)) return refuse(*error);
  if (auto refused = context.admission.check_queue(*prompts))
    return refuse(openai::admission_error(*refused));
  std::string id =
      call->request_id.empty() ? request.request_id : http::sane_request_id(call->request_id);
  const service::SharedTag tag = openai::tag_of(
      request,
      {.id = id,
       .operation = request.path.find("embed") != std::string::npos ? "embeddings" : "score",
       .model = openai::model_of(context, call->model)});
  for (service::Prepared& prompt : *prompts) prompt.tag = tag;
  std::make_shared<Exchange>(context, kind, std::move(*call), std::move(id), std::move(reply),
                             std::move(std::get<service::Ticket>(admitted)))
      ->start(std::move(*prompts));
}

}  // namespace

http::Route route_of(const char* path, const RouteKind& kind, service::ProtocolContext& context,
                     const http::ApiKeys& keys) {
  return {.method = "POST",
          .path = path,
          .handler =
              [&](const http::HttpRequest& request, std::shared_ptr<http::HttpReply> reply) {
                answer(context, keys, kind, request, std::move(reply));
              },
          .refuse_when_full = [&]() -> std::optional<http::HttpResponse> {
            const auto refused = context.admission.refuse_when_full();
            if (!refused) return std::nullopt;
            return kind.refusal(openai::admission_error(*refused));
          }};
}

}  // namespace skiff::pooling
