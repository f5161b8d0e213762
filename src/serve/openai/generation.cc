#include "serve/openai/generation.h"

#include <algorithm>
#include <ctime>

#include "base/json_text.h"
#include "base/log.h"
#include "serve/openai/aside.h"
#include "serve/openai/body.h"
#include "serve/openai/failures.h"

namespace skiff::openai {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the text with which every JSON object of one generation begins.
std::string envelope_head(const std::string& id, const char* object, int64_t created,
                          const std::string& model) {
  std::string head = R"({"id":)";
  append_json_string(head, id);
  head += fmt::format(R"(,"object":"{}","created":{},"model":)", object, created);
  append_json_string(head, model);
  return head += R"(,"choices":[)";
}

// A field that pads an event to a multiple of kEventSize bytes, because the sizes of encrypted
// events reveal the lengths of their tokens.
constexpr size_t kEventSize = 64;
std::string obfuscation(size_t size) {
  constexpr std::string_view kField = R"(,"obfuscation":"")";
  return fmt::format(R"(,"obfuscation":"{:x<{}}")", "",
                     kEventSize - (size + kField.size()) % kEventSize);
}

// Larger replies, in bytes, are serialized on a worker: a megabyte takes the output thread
// milliseconds, and all streams wait for that thread.
constexpr size_t kLargeReply = 1 << 20;

// Approximate bytes of JSON for each entry.
constexpr size_t kLogprobSize = 128, kTokenIdSize = 8;

size_t logprobs_size(const std::vector<PositionLogprobs>& positions) {
  size_t count = 0;
  for (const PositionLogprobs& position : positions) count += 1 + position.top.size();
  return count * kLogprobSize;
}

size_t logprobs_size(const std::vector<DraftLogprobs>& drafts) {
  size_t count = 0;
  for (const DraftLogprobs& one : drafts) count += 1 + one.logprobs.top.size();
  return count * kLogprobSize;
}

bool is_failure(Finish finish) {
  return finish == Finish::kExhausted || finish == Finish::kCancelled;
}

}  // namespace

Generation::Generation(service::ProtocolContext& context, const OpenAiShape& shape, OpenAiCall call,
                       std::string id, std::shared_ptr<http::HttpReply> reply,
                       service::Ticket ticket)
    : context_(context.shared_from_this()),
      shape_(shape),
      call_(std::move(call)),
      id_(std::move(id)),
      model_(model_of(context, call_.model)),
      created_(std::time(nullptr)),
      drawn_(std::max(call_.request.n, call_.best_of)),
      head_(envelope_head(id_, shape_.chunk_object(), created_, model_)),
      reply_(std::move(reply)),
      ticket_(std::move(ticket)),
      last_write_(Clock::now()) {}

void Generation::start(std::vector<service::Prepared> prompts) {
  const text::Tokenizer& tokenizer = context_->service.tokenizer();
  for (size_t i = 0; i < prompts.size(); ++i) {
    PromptInfo info{.tokens = prompts[i].prompt, .echo = {}, .split = prompts[i].answer != nullptr};
    const auto* text = call_.echo ? std::get_if<std::string>(&call_.prompts[i]) : nullptr;
    const bool exact = call_.request.truncate_prompt == 0 && call_.request.begun.empty();
    if (text && exact)
      info.echo = *text;
    else if (call_.echo)
      info.echo = tokenizer.decode(info.tokens, call_.request.skip_special);
    prompts_.push_back(std::move(info));
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    const size_t ids = call_.return_token_ids ? 2 * kTokenIdSize * prompts_[i].tokens.size() : 0;
    size_ += static_cast<size_t>(call_.request.n) * (prompts_[i].echo.size() + ids);
    for (int j = 0; j < drawn_; ++j)
      writers_.push_back(
          shape_.writer(static_cast<int>(writers_.size()), {.call = call_,
                                                            .prompt = prompts_[i],
                                                            .tokenizer = tokenizer,
                                                            .config = context_->config}));
  }
  usages_.resize(prompts.size());
  held_.resize(writers_.size());
  likelihoods_.resize(writers_.size());
  context_->generations.add(shared_from_this());
  try {
    start_all(std::move(prompts));
  } catch (...) {
    cancel();  // the sequences that were started have no reader
    throw;
  }
}

void Generation::start_all(std::vector<service::Prepared> prompts) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    const service::RequestId request = context_->service.start(
        std::move(prompts[i]),
        [self = shared_from_this(), i](service::Reply reply) { self->take(i, std::move(reply)); });
    std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  reply_->on_close([weak = weak_from_this()] {
    if (auto self = weak.lock()) self->cancel();
  });
  bool failed;
  {
    std::lock_guard lock(mutex_);
    failed = done_;
  }
  if (failed) cancel();
}

void Generation::take(size_t prompt, service::Reply reply) {
  bool failed = false;
  {
    std::lock_guard lock(mutex_);
    if (done_) return;
    usages_[prompt] = reply.usage;
    const bool last = reply.last;
    const size_t writer = prompt * static_cast<size_t>(drawn_) + static_cast<size_t>(reply.index);
    failed = is_failure(reply.finish);
    if (failed) {
      const http::ApiError error = why_ended(*context_, reply);
      reply.finish = Finish::kNone;
      if (call_.stream) append(held_[writer], std::move(reply));
      fail(error);
    } else if (call_.stream) {
      stream(writer, std::move(reply));
    } else {
      gather(writer, std::move(reply));
    }
    if (last && !done_ && ++ended_ == prompts_.size()) finish();
  }
  if (failed) cancel();
}

void Generation::open() {
  if (std::exchange(opened_, true)) return;
  reply_->begin_stream({.status = 200,
                        .body = "",
                        .content_type = "text/event-stream; charset=utf-8",
                        .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
}

// False once the client has left.
bool Generation::write_event(const ChoiceEvent& choice, const std::string& usage) {
  last_write_ = Clock::now();
  std::string event;
  event.reserve(6 + head_.size() + choice.choice.size() + choice.beside.size() + usage.size() + 4 +
                kEventSize);
  event += "data: ";
  event += head_;
  event += choice.choice;
  event += ']';
  event += choice.beside;
  event += usage;
  if (call_.obfuscate) event += obfuscation(event.size());
  event += "}\n\n";
  return reply_->write(std::move(event));
}

void Generation::gather(size_t writer, service::Reply reply) {
  const size_t copies = writer == 0 ? 2 : 1;  // a chat has the prompt's beside its choices, too
  size_ += reply.text.size() + logprobs_size(reply.logprobs) + logprobs_size(reply.draft_logprobs) +
           copies * logprobs_size(reply.prompt_logprobs);
  if (call_.return_token_ids) size_ += 2 * kTokenIdSize * reply.tokens.size();
  for (const PositionLogprobs& position : reply.logprobs) {
    likelihoods_[writer].sum += position.chosen.logprob;
    ++likelihoods_[writer].tokens;
  }
  writers_[writer]->gather(std::move(reply));
}

void Generation::stream(size_t writer, service::Reply reply) {
  if (call_.max_streaming_tokens > 1) {
    service::Reply& held = held_[writer];
    held.own = reply.own;
    append(held, std::move(reply));
    if (std::ssize(held.tokens) < call_.max_streaming_tokens && held.finish == Finish::kNone)
      return;
    reply = std::exchange(held, {});
  }
  send_events(writer, std::move(reply));
}

void Generation::send_events(size_t writer, service::Reply reply) {
  service::Usage so_far = reply.own;
  if (call_.discard_output) so_far.completion = 0;
  open();
  std::string usage;
  if (call_.continuous_usage)
    usage = R"(,"usage":)" + http::json_text(usage_json(so_far));
  else if (call_.include_usage)
    usage = R"(,"usage":null)";
  for (const ChoiceEvent& event : writers_[writer]->stream(std::move(reply)))
    if (!write_event(event, usage)) return;
}

void Generation::finish() {
  done_ = true;
  if (!call_.stream) return send_whole();
  ticket_.release();
  if (call_.include_usage) write_event({""}, R"(,"usage":)" + http::json_text(usage_json(usage())));
  reply_->write("data: [DONE]\n\n");
  reply_->end_stream();
}

// Once done_ is set nothing else uses the writers, so a worker needs no lock for them, and threads
// that need the lock meanwhile (see tick()) do not wait for the worker.
void Generation::send_whole() {
  if (size_ <= kLargeReply) {
    ticket_.release();
    return reply_->send({.status = 200, .body = whole()});
  }
  reply_->on_worker([self = shared_from_this()] {
    try {
      self->reply_->send({.status = 200, .body = self->whole()});
    } catch (const std::exception& e) {
      spdlog::error("a reply of about {} bytes could not be written: {}", self->size_,
                    escaped(e.what()));
      self->reply_->send(http::error_response(http::api_error(500, "internal error")));
    }
    std::lock_guard lock(self->mutex_);
    self->ticket_.release();
  });
}

// The writers of the n likeliest sequences of a prompt, likeliest first.
std::vector<size_t> Generation::best_of_prompt(size_t prompt) const {
  const size_t first = prompt * static_cast<size_t>(drawn_);
  std::vector<size_t> order;
  order.reserve(static_cast<size_t>(drawn_));
  for (size_t i = 0; i < static_cast<size_t>(drawn_); ++i) order.push_back(first + i);
  if (drawn_ > call_.request.n)
    std::ranges::sort(order, [this](size_t a, size_t b) {
      const auto of_a = likelihoods_[a].mean(), of_b = likelihoods_[b].mean();
      return of_a > of_b || (of_a == of_b && a < b);  // equal ones stay in order
    });
  order.resize(static_cast<size_t>(call_.request.n));
  return order;
}

// Frees each writer once its choice is written, so that the reply is not in memory twice.
std::string Generation::whole() {
  std::string body = envelope_head(id_, shape_.object(), created_, model_);
  std::string beside = shape_.beside(call_, prompts_);
  JsonWriter choices(body);
  int index = 0;
  for (size_t prompt = 0; prompt < prompts_.size(); ++prompt)
    for (const size_t writer : best_of_prompt(prompt)) {
      if (index == 0) beside += writers_[writer]->beside();
      writers_[writer]->whole(index++, choices);
      writers_[writer].reset();
    }
  body += ']';
  body += beside;
  return body += R"(,"usage":)" + http::json_text(usage_json(usage())) + "}";
}

// Sends tokens that waited for a full event first. Once a stream is open its status cannot change:
// the error is then an event, followed by [DONE] as clients expect.
void Generation::fail(const http::ApiError& error) {
  done_ = true;
  ticket_.release();
  for (size_t writer = 0; writer < held_.size(); ++writer) {
    service::Reply held = std::exchange(held_[writer], {});
    if (!held.text.empty() || !held.tokens.empty() || !held.parts.empty())
      send_events(writer, std::move(held));
  }
  if (!opened_) return reply_->send(http::error_response(error));
  reply_->write("data: " + http::json_text(http::error_json(error)) + "\n\ndata: [DONE]\n\n");
  reply_->end_stream();
}

void Generation::cancel() {
  std::vector<service::RequestId> requests;
  {
    std::lock_guard lock(mutex_);
    done_ = true;
    ticket_.release();
    requests = requests_;
  }
  for (service::RequestId request : requests) context_->service.cancel(request);
}

void Generation::tick() {
  std::lock_guard lock(mutex_);
  if (done_ || !call_.stream) return;
  const std::chrono::duration<double> silent = Clock::now() - last_write_;
  if (silent.count() < context_->config.stream_idle_seconds) return;
  open();
  last_write_ = Clock::now();
  reply_->write(": keep-alive\n\n");
}

void Generation::cut_off(service::CutOff why) {
  {
    std::lock_guard lock(mutex_);
    if (done_) return;
    fail(why_cut_off(why));
  }
  cancel();
}

service::Usage Generation::usage() const {
  service::Usage sum;
  for (const service::Usage& usage : usages_) {
    sum.prompt += usage.prompt;
    sum.cached += usage.cached;
    sum.completion += usage.completion;
    sum.reasoning += usage.reasoning;
    sum.accepted += usage.accepted;
    sum.rejected += usage.rejected;
  }
  if (call_.discard_output) sum.completion = 0;
  return sum;
}

namespace {

Result<std::vector<service::Prepared>> prepare_all(const service::Service& service,
                                                   OpenAiCall& call) {
  service::Request common = call.request;
  common.streamed = call.stream;
  if (call.best_of > common.n) {
    common.n = call.best_of;
    common.params.logprobs = std::max(common.params.logprobs, 0);
  }
  // The prompts may be megabytes, so they are moved; only echo needs their text again.
  if (!call.echo) return service.prepare_all(std::move(common), std::exchange(call.prompts, {}));
  return service.prepare_all(std::move(common), call.prompts);
}

void refuse(http::HttpReply& reply, const http::ApiError& error) {
  reply.send(http::error_response(error));
}

const char* input_of(Endpoint endpoint) {
  return endpoint == Endpoint::kChat ? "messages" : "prompt";
}

// A request whose body has been read and found right.
struct Accepted {
  OpenAiCall call;
  std::string id;
  service::SharedTag tag;
  service::Ticket ticket;
  std::shared_ptr<const void> counted;  // HttpRequest::counted
};

void begin(service::ProtocolContext& context, Endpoint endpoint, Accepted accepted,
           std::shared_ptr<http::HttpReply> reply) {
  auto prompts = prepare_all(context.service, accepted.call);
  if (!prompts) {
    http::ApiError error = http::api_error(prompts.error(), input_of(endpoint));
    // In a chat the count is top_logprobs; logprobs is a flag.
    if (endpoint == Endpoint::kChat && error.param == "logprobs") error.param = "top_logprobs";
    return refuse(*reply, error);
  }
  if (auto refused = context.admission.check_queue(*prompts))
    return refuse(*reply, admission_error(*refused));
  for (service::Prepared& prompt : *prompts) prompt.tag = accepted.tag;
  const OpenAiShape& shape = endpoint == Endpoint::kChat ? chat_shape() : completions_shape();
  auto generation =
      std::make_shared<Generation>(context, shape, std::move(accepted.call), std::move(accepted.id),
                                   std::move(reply), std::move(accepted.ticket));
  generation->start(std::move(*prompts));
}

}  // namespace

void generate(service::ProtocolContext& context, const http::ApiKeys& keys, Endpoint endpoint,
              const OtherForm* other, const http::HttpRequest& request,
              std::shared_ptr<http::HttpReply> reply) {
  auto admitted = context.admission.admit();  // before the request's body is parsed
  if (const auto* refused = std::get_if<service::AdmissionRefusal>(&admitted))
    return refuse(*reply, admission_error(*refused));
  const auto json = read_body(request);
  if (const auto* error = std::get_if<http::ApiError>(&json)) return refuse(*reply, *error);
  const OrderedJson& body = *std::get<JsonOwner<OrderedJson>>(json);
  if (other && other->claims(body))
    return other->answer(body, request, std::move(reply),
                         std::move(std::get<service::Ticket>(admitted)));
  auto call = parse_openai_call(body, endpoint, context.config.defaults);
  if (!call) return refuse(*reply, http::api_error(call.error(), input_of(endpoint)));
  if (auto error = check_unknown(context.config, call->unknown_fields))
    return refuse(*reply, *error);
  if (auto error = check_model(context.admission, call->model)) return refuse(*reply, *error);
  if (auto error = check_policy(context.config.policy, call->request))
    return refuse(*reply, *error);
  if (!context.config.policy.shared_cache)
    call->request.cache.salt.insert(0, keys.cache_salt(request));
  call->request.replica = request.replica;
  const OpenAiShape& shape = endpoint == Endpoint::kChat ? chat_shape() : completions_shape();
  const std::string name =
      call->request_id.empty() ? request.request_id : http::sane_request_id(call->request_id);
  const service::SharedTag tag =
      tag_of(request, {.id = shape.id_prefix() + name,
                       .operation = endpoint == Endpoint::kChat ? "chat" : "text_completion",
                       .model = model_of(context, call->model),
                       .streamed = call->stream});
  const bool aside = service::asks_for_form(call->request, call->prompts.front());
  Accepted accepted{.call = std::move(*call),
                    .id = shape.id_prefix() + name,
                    .tag = tag,
                    .ticket = std::move(std::get<service::Ticket>(admitted)),
                    .counted = request.counted};
  if (!aside) return begin(context, endpoint, std::move(accepted), std::move(reply));
  const auto held = std::make_shared<Accepted>(std::move(accepted));
  go_on_aside(context, reply, [&context, endpoint, held, reply] {
    begin(context, endpoint, std::move(*held), reply);
  });
}

}  // namespace skiff::openai
