#include "serve/openai_generation.h"

#include <algorithm>
#include <ctime>

#include "base/json_text.h"
#include "serve/openai_body.h"
#include "serve/overload.h"

namespace skiff {
namespace {

using Clock = std::chrono::steady_clock;

std::string model_told(const Front& front, const std::string& asked) {
  return asked.empty() || asked == "default" ? front.config.model_names.front() : asked;
}

// Of what took too long. Trying the same again would take as long again, where it ran; where it
// waited, the load may be less by then.
ApiError too_late(const Reply& reply) {
  const bool waited = reply.refusal == Refusal::kWaitingTime;
  ApiError error = api_error(waited ? 429 : 504, reply.why);
  error.type = "timeout_error";
  error.code = "timeout";
  if (waited) return retry_later(std::move(error), reply.retry_seconds);
  error.headers.emplace_back("x-should-retry", "false");
  return error;
}

// The engine itself queues what must wait and refuses only what can never run, so trying again
// would not help; unless it is going down, and another server may take the request.
ApiError why_ended(const Front& front, const Reply& reply) {
  if (reply.finish == Finish::kCancelled)
    return api_error(503, "the request was cancelled by the server");
  if (reply.refusal == Refusal::kWaitingTime || reply.refusal == Refusal::kTimeout)
    return too_late(reply);
  const bool closing =
      reply.refusal == Refusal::kStopping || front.gate.draining || !front.service.health();
  return api_error(closing ? 503 : 400,
                   reply.why.empty() ? "the server has no room for this request" : reply.why);
}

// What every JSON object of one generation begins with.
std::string envelope_head(const std::string& id, const char* object, int64_t created,
                          const std::string& model) {
  std::string head = R"({"id":)";
  append_json_string(head, id);
  head += fmt::format(R"(,"object":"{}","created":{},"model":)", object, created);
  append_json_string(head, model);
  return head += R"(,"choices":[)";
}

// A field that fills an event up to a multiple of this many bytes, since the sizes of encrypted
// events tell how long their tokens are.
constexpr size_t kEventSize = 64;
std::string obfuscation(size_t size) {
  constexpr std::string_view kField = R"(,"obfuscation":"")";
  return fmt::format(R"(,"obfuscation":"{:x<{}}")", "",
                     kEventSize - (size + kField.size()) % kEventSize);
}

bool is_failure(Finish finish) {
  return finish == Finish::kExhausted || finish == Finish::kCancelled;
}

}  // namespace

Generation::Generation(Front& front, const OpenAiShape& shape, OpenAiCall call, std::string id,
                       std::shared_ptr<HttpReply> reply, std::shared_ptr<void> place)
    : front_(front.shared_from_this()),
      shape_(shape),
      call_(std::move(call)),
      id_(std::move(id)),
      model_(model_told(front, call_.model)),
      created_(std::time(nullptr)),
      drawn_(std::max(call_.request.n, call_.best_of)),
      head_(envelope_head(id_, shape_.chunk_object(), created_, model_)),
      reply_(std::move(reply)),
      place_(std::move(place)),
      last_write_(Clock::now()) {}

void Generation::start(std::vector<Prepared> prompts) {
  const Tokenizer& tokenizer = front_->service.tokenizer();
  for (size_t i = 0; i < prompts.size(); ++i) {
    PromptInfo info{.tokens = prompts[i].prompt, .echo = {}};
    const auto* text = std::get_if<std::string>(&call_.prompts[i]);
    const bool exact = call_.request.truncate_prompt == 0 && call_.request.begun.empty();
    if (call_.echo)
      info.echo = text && exact ? *text : tokenizer.decode(info.tokens, call_.request.skip_special);
    prompts_.push_back(std::move(info));
  }
  for (size_t i = 0; i < prompts.size(); ++i)
    for (int j = 0; j < drawn_; ++j)
      writers_.push_back(
          shape_.writer(static_cast<int>(writers_.size()), call_, prompts_[i], tokenizer));
  usages_.resize(prompts.size());
  held_.resize(writers_.size());
  likelihoods_.resize(writers_.size());
  front_->gate.watch(shared_from_this());
  for (size_t i = 0; i < prompts.size(); ++i) {
    const RequestId request = front_->service.start(
        std::move(prompts[i]),
        [self = shared_from_this(), i](Reply reply) { self->take(i, std::move(reply)); });
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

void Generation::take(size_t prompt, Reply reply) {
  bool failed = false;
  {
    std::lock_guard lock(mutex_);
    if (done_) return;
    usages_[prompt] = reply.usage;
    const bool last = reply.last;
    const size_t writer = prompt * static_cast<size_t>(drawn_) + static_cast<size_t>(reply.index);
    failed = is_failure(reply.finish);
    if (failed) {
      fail(why_ended(*front_, reply));
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

// False once nobody reads.
bool Generation::write_event(const std::string& choice, const std::string& usage) {
  last_write_ = Clock::now();
  std::string event;
  event.reserve(6 + head_.size() + choice.size() + usage.size() + 4 + kEventSize);
  event += "data: ";
  event += head_;
  event += choice;
  event += ']';
  event += usage;
  if (call_.obfuscate) event += obfuscation(event.size());
  event += "}\n\n";
  return reply_->write(std::move(event));
}

void Generation::gather(size_t writer, Reply reply) {
  for (const PositionLogprobs& position : reply.logprobs) {
    likelihoods_[writer].sum += position.chosen.logprob;
    ++likelihoods_[writer].tokens;
  }
  writers_[writer]->gather(std::move(reply));
}

void Generation::stream(size_t writer, Reply reply) {
  const Usage so_far = reply.usage;
  if (call_.max_streaming_tokens > 1) {
    Reply& held = held_[writer];
    append(held, std::move(reply));
    if (std::ssize(held.tokens) < call_.max_streaming_tokens && held.finish == Finish::kNone)
      return;
    reply = std::exchange(held, {});
  }
  open();
  std::string usage;
  if (call_.continuous_usage)
    usage = R"(,"usage":)" + json_text(usage_json(so_far));
  else if (call_.include_usage)
    usage = R"(,"usage":null)";
  for (const std::string& choice : writers_[writer]->stream(std::move(reply)))
    if (!write_event(choice, usage)) return;
}

void Generation::finish() {
  done_ = true;
  place_.reset();
  if (!call_.stream) return reply_->send({.status = 200, .body = whole()});
  if (call_.include_usage) write_event("", R"(,"usage":)" + json_text(usage_json(usage())));
  reply_->write("data: [DONE]\n\n");
  reply_->end_stream();
}

// The n likeliest of the sequences drawn, likeliest first.
std::vector<Json> Generation::best_of_prompt(size_t prompt) const {
  const size_t first = prompt * static_cast<size_t>(drawn_);
  std::vector<size_t> order;
  for (size_t i = 0; i < static_cast<size_t>(drawn_); ++i) order.push_back(first + i);
  if (drawn_ > call_.request.n)
    std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
      return likelihoods_[a].mean() > likelihoods_[b].mean();
    });
  std::vector<Json> choices;
  for (int i = 0; i < call_.request.n; ++i) choices.push_back(writers_[order[i]]->whole());
  return choices;
}

std::string Generation::whole() const {
  std::string body = envelope_head(id_, shape_.object(), created_, model_);
  int index = 0;
  for (size_t prompt = 0; prompt < prompts_.size(); ++prompt)
    for (Json& choice : best_of_prompt(prompt)) {
      choice["index"] = index;
      if (index++ > 0) body += ',';
      body += json_text(choice);
    }
  return body += R"(],"usage":)" + json_text(usage_json(usage())) + "}";
}

// The status is gone once a stream is open; then the error is its last event, without [DONE].
void Generation::fail(const ApiError& error) {
  done_ = true;
  place_.reset();
  if (!opened_) return reply_->send(error_response(error));
  reply_->write("data: " + json_text(error_json(error)) + "\n\n");
  reply_->end_stream();
}

void Generation::cancel() {
  std::vector<RequestId> requests;
  {
    std::lock_guard lock(mutex_);
    done_ = true;
    place_.reset();
    requests = requests_;
  }
  for (RequestId request : requests) front_->service.cancel(request);
}

void Generation::tick() {
  std::lock_guard lock(mutex_);
  if (done_ || !call_.stream) return;
  const std::chrono::duration<double> silent = Clock::now() - last_write_;
  if (silent.count() < front_->config.stream_idle_seconds) return;
  open();
  last_write_ = Clock::now();
  reply_->write(": keep-alive\n\n");
}

void Generation::cut_off() {
  {
    std::lock_guard lock(mutex_);
    if (done_) return;
    fail(api_error(503, "the server is shutting down"));
  }
  cancel();
}

Usage Generation::usage() const {
  Usage sum;
  for (const Usage& usage : usages_) {
    sum.prompt += usage.prompt;
    sum.cached += usage.cached;
    sum.completion += usage.completion;
  }
  if (call_.discard_output) sum.completion = 0;
  return sum;
}

namespace {

Result<std::vector<Prepared>> prepare_all(const Service& service, OpenAiCall& call) {
  std::vector<Prepared> all;
  for (auto& prompt : call.prompts) {
    Request request = call.request;
    // A conversation may be megabytes and is not asked for again; a text is, by echo.
    if (auto* conversation = std::get_if<Conversation>(&prompt))
      request.input = std::move(*conversation);
    else
      request.input = prompt;
    if (call.best_of > request.n) {
      request.n = call.best_of;
      request.params.logprobs = std::max(request.params.logprobs, 0);
    }
    auto prepared = service.prepare(std::move(request));
    if (!prepared) return prepared.error();
    all.push_back(std::move(*prepared));
  }
  return all;
}

}  // namespace

void generate(Front& front, Endpoint endpoint, HttpRequest request,
              std::shared_ptr<HttpReply> reply) {
  const auto refuse = [&](ApiError error) { reply->send(error_response(error)); };
  if (front.gate.draining) return refuse(api_error(503, "the server is shutting down"));
  auto place = front.gate.enter();
  if (!place) return refuse(too_many_requests(front));
  if (auto full = refuse_waiting(front, {})) return refuse(*full);  // before its text is looked at
  const auto json = read_body(front, request);
  if (const auto* error = std::get_if<ApiError>(&json)) return refuse(*error);
  const char* input = endpoint == Endpoint::kChat ? "messages" : "prompt";
  auto call = parse_openai_call(std::get<OrderedJson>(json), endpoint, front.config.defaults);
  if (!call) return refuse(api_error(call.error(), input));
  if (auto error = check_unknown(front, call->unknown_fields)) return refuse(*error);
  if (auto error = check_model(front, call->model)) return refuse(*error);
  auto prompts = prepare_all(front.service, *call);
  if (!prompts) {
    ApiError error = api_error(prompts.error(), input);
    // Chat splits what the service calls logprobs into a flag and a count.
    if (endpoint == Endpoint::kChat && error.param == "logprobs") error.param = "top_logprobs";
    return refuse(error);
  }
  if (auto full = refuse_waiting(front, *prompts)) return refuse(*full);

  const OpenAiShape& shape = endpoint == Endpoint::kChat ? chat_shape() : completions_shape();
  const std::string name =
      call->request_id.empty() ? request.request_id : sane_request_id(call->request_id);
  auto generation = std::make_shared<Generation>(
      front, shape, std::move(*call), shape.id_prefix() + name, std::move(reply), std::move(place));
  generation->start(std::move(*prompts));
}

}  // namespace skiff
