#include "serve/turn/turn.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "serve/openai/aside.h"
#include "serve/openai/body.h"
#include "serve/openai/failures.h"
#include "serve/openai/params.h"
#include "serve/openai/shape.h"
#include "serve/turn/items.h"

namespace skiff::turn {
namespace {

using Clock = std::chrono::steady_clock;

// How the client wants the answer.
struct Manner {
  bool streams = false;
  bool shows_reasoning = true;
};

// The service's sink keeps it alive. Thread-safe.
class Turn : public service::OpenGeneration, public std::enable_shared_from_this<Turn> {
 public:
  Turn(service::ProtocolContext& context, const TurnProtocol& protocol, std::string request_id,
       std::unique_ptr<TurnWriter> writer, Manner manner, std::shared_ptr<http::HttpReply> reply,
       service::Ticket ticket)
      : context_(context.shared_from_this()),
        protocol_(protocol),
        request_id_(std::move(request_id)),
        manner_(manner),
        reply_(std::move(reply)),
        writer_(std::move(writer)),
        ticket_(std::move(ticket)),
        last_write_(Clock::now()) {}

  void start(service::Prepared prompt) {
    context_->generations.add(shared_from_this());
    split_ = prompt.answer != nullptr;
    const service::RequestId request = context_->service.start(
        std::move(prompt),
        [self = shared_from_this()](service::Reply reply) { self->take(std::move(reply)); });
    {
      std::lock_guard lock(mutex_);
      request_ = request;
    }
    reply_->on_close([weak = weak_from_this()] {
      if (auto self = weak.lock()) self->cancel();
    });
  }

  void tick() override {
    std::lock_guard lock(mutex_);
    if (done_ || !manner_.streams) return;
    const std::chrono::duration<double> silent = Clock::now() - last_write_;
    if (silent.count() < context_->config.stream_idle_seconds) return;
    open();
    write(writer_->keep_alive());
  }

  void cut_off(service::CutOff why) override {
    {
      std::lock_guard lock(mutex_);
      if (done_) return;
      fail(openai::why_cut_off(why));
    }
    cancel();
  }

 private:
  void take(service::Reply reply) {
    std::lock_guard lock(mutex_);
    if (done_) return;
    if (!split_ && !reply.text.empty())
      reply.parts.push_back({.part = answer::Part::kContent, .text = reply.text});
    if (reply.finish == Finish::kExhausted || reply.finish == Finish::kCancelled)
      return fail(openai::why_ended(*context_, reply));
    if (!manner_.shows_reasoning)
      std::erase_if(reply.parts, [](const answer::AnswerEvent& event) {
        return event.part == answer::Part::kReasoning;
      });
    const bool last = reply.finish != Finish::kNone;
    if (!reply.tokens.empty() && !std::exchange(begun_, true)) writer_->note_first_token();
    if (manner_.streams) {
      open();
      write(writer_->piece(reply));
    } else {
      whole_.usage = reply.usage;
      openai::append(whole_, std::move(reply));
    }
    if (last) finish();
  }

  void finish() {
    done_ = true;
    ticket_.release();
    if (manner_.streams) return reply_->end_stream();
    reply_->send({.status = 200, .body = writer_->whole(whole_)});
  }

  void fail(const http::ApiError& error) {
    done_ = true;
    ticket_.release();
    if (!opened_) return reply_->send(protocol_.refusal(error, request_id_));
    write(writer_->failure(error));
    reply_->end_stream();
  }

  void cancel() {
    std::optional<service::RequestId> request;
    {
      std::lock_guard lock(mutex_);
      done_ = true;
      ticket_.release();
      request = request_;
    }
    if (request) context_->service.cancel(*request);
  }

  void open() {
    if (std::exchange(opened_, true)) return;
    reply_->begin_stream({.status = 200,
                          .body = "",
                          .content_type = writer_->stream_type(),
                          .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
    write(writer_->open());
  }

  void write(std::string events) {
    last_write_ = Clock::now();
    if (!events.empty()) reply_->write(std::move(events));
  }

  const std::shared_ptr<service::ProtocolContext> context_;
  const TurnProtocol& protocol_;
  const std::string request_id_;
  const Manner manner_;
  const std::shared_ptr<http::HttpReply> reply_;

  std::mutex mutex_;  // guards the rest
  const std::unique_ptr<TurnWriter> writer_;
  service::Ticket ticket_;
  service::Reply whole_;
  std::optional<service::RequestId> request_;
  bool split_ = false, begun_ = false, opened_ = false, done_ = false;
  Clock::time_point last_write_;
};

// Reads a body as the chat completion that it stands for, with the same checks.
Result<openai::OpenAiCall> read_call(const TurnProtocol& protocol, const OrderedJson& body,
                                     const service::SamplingDefaults& defaults) {
  if (!body.is_object()) return Error{Code::kInvalid, "the body must be a JSON object"};
  auto chat = protocol.to_chat(body);
  if (!chat) return chat.error();
  auto call = openai::parse_openai_call(*chat, openai::Endpoint::kChat, defaults);
  if (!call) return call.error();
  const auto refused = [](const char* field) {
    return Error{Code::kUnsupported, fmt::format("{} is not supported by this endpoint", field),
                 field};
  };
  if (call->request.n != 1) return refused("n");
  if (call->best_of != 1) return refused("best_of");
  if (call->logprobs) return refused("logprobs");
  if (call->prompt_logprobs) return refused("prompt_logprobs");
  if (call->return_token_ids) return refused("return_token_ids");
  if (call->tokens_as_ids) return refused("return_tokens_as_token_ids");
  if (call->max_streaming_tokens > 1) return refused("max_streaming_response_tokens");
  return call;
}

bool has(const OrderedJson& body, std::string_view path) {
  const OrderedJson* at = &body;
  while (at && !path.empty()) {
    const std::string_view name = path.substr(0, path.find('.'));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    at = member(*at, std::string(name).c_str());
  }
  return at != nullptr;
}

// Names the field that the client has sent instead of the one that it became.
http::ApiError in_own_words(const TurnProtocol& protocol, const OrderedJson& body,
                            http::ApiError error) {
  for (const auto& [chat, own] : protocol.renamed()) {
    if (error.param != chat || !has(body, own)) continue;
    error.param = own;
    const bool begins = error.message.starts_with(chat) &&
                        error.message.find_first_of(" :.", chat.size()) == chat.size();
    if (begins) error.message.replace(0, chat.size(), own);
    break;
  }
  return error;
}

std::optional<http::ApiError> check(const service::ProtocolContext& context,
                                    const openai::OpenAiCall& call) {
  if (auto error = openai::check_unknown(context.config, call.unknown_fields)) return error;
  if (auto error = openai::check_model(context.admission, call.model)) return error;
  return openai::check_policy(context.config.policy, call.request);
}

service::Request request_of(openai::OpenAiCall& call) {
  service::Request request = std::move(call.request);
  request.input = std::move(call.prompts.front());
  request.streamed = call.stream;
  return request;
}

// A request whose body has been read and found right.
struct Accepted {
  std::string request_id;
  JsonOwner<OrderedJson> body;
  std::shared_ptr<const void> counted;  // HttpRequest::counted
  service::Request wanted;
  TurnInfo info;
  Manner manner;
  service::SharedTag tag;
  service::Ticket ticket;
};

void begin(const TurnProtocol& protocol, service::ProtocolContext& context, Accepted accepted,
           std::shared_ptr<http::HttpReply> reply) {
  const auto refuse = [&](const http::ApiError& error) {
    reply->send(protocol.refusal(error, accepted.request_id));
  };
  auto prompt = context.service.prepare(std::move(accepted.wanted));
  if (!prompt)
    return refuse(
        in_own_words(protocol, *accepted.body, http::api_error(prompt.error(), "messages")));
  if (auto refused = context.admission.check_queue({&*prompt, 1}))
    return refuse(openai::admission_error(*refused));
  accepted.info.prompt_tokens = static_cast<int>(prompt->prompt.size());
  prompt->tag = std::move(accepted.tag);
  auto writer = protocol.writer(std::move(accepted.info),
                                {.json = *accepted.body, .counted = accepted.counted});
  std::make_shared<Turn>(context, protocol, std::move(accepted.request_id), std::move(writer),
                         accepted.manner, std::move(reply), std::move(accepted.ticket))
      ->start(std::move(*prompt));
}

void answer(const TurnProtocol& protocol, service::ProtocolContext& context,
            const http::ApiKeys& keys, const http::HttpRequest& request,
            std::shared_ptr<http::HttpReply> reply) {
  const auto refuse = [&](const http::ApiError& error) {
    reply->send(protocol.refusal(error, request.request_id));
  };
  auto admitted = context.admission.admit();  // before the request's body is parsed
  if (const auto* refused = std::get_if<service::AdmissionRefusal>(&admitted))
    return refuse(openai::admission_error(*refused));
  auto json = openai::read_body(request);
  if (const auto* error = std::get_if<http::ApiError>(&json)) return refuse(*error);
  const OrderedJson& body = *std::get<JsonOwner<OrderedJson>>(json);
  const auto refuse_call = [&](http::ApiError error) {
    refuse(in_own_words(protocol, body, std::move(error)));
  };
  auto call = read_call(protocol, body, context.config.defaults);
  if (!call) return refuse_call(http::api_error(call.error(), "messages"));
  if (auto error = check(context, *call)) return refuse_call(*error);
  TurnInfo info{
      .id = call->request_id.empty() ? request.request_id : http::sane_request_id(call->request_id),
      .model = openai::model_of(context, call->model),
      .created = std::time(nullptr)};
  const Manner manner{.streams = call->stream, .shows_reasoning = call->include_reasoning};
  service::Request wanted = request_of(*call);
  if (!context.config.policy.shared_cache) wanted.cache.salt.insert(0, keys.cache_salt(request));
  wanted.replica = request.replica;
  const bool aside = service::asks_for_form(wanted, wanted.input);
  service::SharedTag tag = openai::tag_of(
      request,
      {.id = info.id, .operation = "chat", .model = info.model, .streamed = manner.streams});
  Accepted accepted{.request_id = request.request_id,
                    .body = std::move(std::get<JsonOwner<OrderedJson>>(json)),
                    .counted = request.counted,
                    .wanted = std::move(wanted),
                    .info = std::move(info),
                    .manner = manner,
                    .tag = std::move(tag),
                    .ticket = std::move(std::get<service::Ticket>(admitted))};
  if (!aside) return begin(protocol, context, std::move(accepted), std::move(reply));
  const auto held = std::make_shared<Accepted>(std::move(accepted));
  openai::go_on_aside(context, reply, [&protocol, &context, held, reply] {
    begin(protocol, context, std::move(*held), reply);
  });
}

http::HttpResponse count(const TurnProtocol& protocol, const service::ProtocolContext& context,
                         const http::HttpRequest& request, const char* field) {
  const auto refusal = [&](const http::ApiError& error) {
    return protocol.refusal(error, request.request_id);
  };
  const auto json = openai::read_body(request);
  if (const auto* error = std::get_if<http::ApiError>(&json)) return refusal(*error);
  const OrderedJson& body = *std::get<JsonOwner<OrderedJson>>(json);
  const auto refusal_of_call = [&](http::ApiError error) {
    return refusal(in_own_words(protocol, body, std::move(error)));
  };
  auto call = read_call(protocol, body, context.config.defaults);
  if (!call) return refusal_of_call(http::api_error(call.error(), "messages"));
  if (auto error = check(context, *call)) return refusal_of_call(*error);
  const auto tokens = context.service.tokenize(request_of(*call));
  if (!tokens) return refusal_of_call(http::api_error(tokens.error(), "messages"));
  return http::json_response({{field, tokens->size()}});
}

}  // namespace

std::string sse_event(std::string_view name, std::string_view data) {
  return fmt::format("event: {}\ndata: {}\n\n", name, data);
}

http::Route turn_route(const char* path, const TurnProtocol& protocol,
                       service::ProtocolContext& context, const http::ApiKeys& keys) {
  return {.method = "POST",
          .path = path,
          .handler =
              [&](const http::HttpRequest& request, std::shared_ptr<http::HttpReply> reply) {
                answer(protocol, context, keys, request, std::move(reply));
              },
          .refuse_when_full = [&]() -> std::optional<http::HttpResponse> {
            const auto refused = context.admission.refuse_when_full();
            if (!refused) return std::nullopt;
            return protocol.refusal(openai::admission_error(*refused), "");
          }};
}

http::Route count_route(const char* path, const char* field, const TurnProtocol& protocol,
                        service::ProtocolContext& context) {
  return {.method = "POST",
          .path = path,
          .handler = [&protocol, &context, field](const http::HttpRequest& request,
                                                  const std::shared_ptr<http::HttpReply>& reply) {
            reply->send(count(protocol, context, request, field));
          }};
}

}  // namespace skiff::turn
