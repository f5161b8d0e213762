#include "capi/submit.h"

#include <array>

#include "base/json_owner.h"
#include "base/json_writer.h"
#include "capi/unix_time.h"
#include "serve/openai/body.h"
#include "serve/openai/params.h"
#include "serve/openai/shape.h"
#include "serve/openai/values.h"
#include "serve/pooling/prompts.h"
#include "serve/pooling/route.h"
#include "serve/service/pooled_model.h"

namespace skiff::capi {
namespace {

using openai::Endpoint;
using openai::OpenAiCall;

Outcome invalid(std::string field, std::string what) {
  return {.status = SKIFF_INVALID, .what = std::move(what), .field = std::move(field)};
}

Outcome outcome_of_refusal(const service::AdmissionRefusal& refusal) {
  using enum service::AdmissionRefusal::Kind;
  switch (refusal.kind) {
    case kPaused:
    case kConcurrency:
    case kQueueFull:
      return {.status = SKIFF_BUSY, .what = refusal.message};
    case kUnknownModel:
      return {.status = SKIFF_NOT_FOUND, .what = refusal.message, .field = "model"};
    case kDraining:
      break;
  }
  return {.status = SKIFF_CLOSED, .what = refusal.message};
}

Result<OrderedJson> parse_body(std::string_view body) {
  // A bias may be given for each token of a vocabulary.
  return parse_ordered_json(body, {.max_bytes = kMaxBody, .wide = "logit_bias"});
}

// What a body may ask of a server, but not here.
Outcome check_fit(const OpenAiCall& call) {
  if (call.prompts.size() != 1)
    return invalid("prompt", fmt::format("prompt holds {} prompts; submit each by itself",
                                         call.prompts.size()));
  if (call.best_of > call.request.n)
    return {.status = SKIFF_UNSUPPORTED,
            .what = fmt::format("best_of is {}; ask for n {} with logprobs 0 and choose by their "
                                "log-probabilities",
                                call.best_of, call.best_of),
            .field = "best_of"};
  if (call.echo)
    return {.status = SKIFF_UNSUPPORTED,
            .what = "echo is not supported here: events carry prompt_token_ids",
            .field = "echo"};
  return {};
}

// The checks that every kind of call has.
template <class AnyCall>
Outcome check_call(const AnyCall& call, const service::ProtocolContext& protocol) {
  if (!call.unknown_fields.empty() && protocol.config.refuse_unknown_fields)
    return invalid(call.unknown_fields.front(),
                   "there is no field \"" + call.unknown_fields.front() + "\"");
  if (const auto refused = protocol.admission.check_model(call.model))
    return outcome_of_refusal(*refused);
  if (const auto refused = openai::check_policy(protocol.config.policy, call.request))
    return {.status = SKIFF_UNSUPPORTED, .what = refused->message, .field = refused->param};
  return {};
}

Outcome start(const Submission& to, OpenAiCall call, service::Prepared prepared,
              service::Ticket ticket, std::optional<Pooled> pooled = {}) {
  service::Service& service = to.loaded.service();
  auto open =
      std::make_shared<Call>(to.id, std::move(call), to.loaded.protocol().shared_from_this());
  open->pooled = pooled;
  open->split = prepared.answer != nullptr;
  open->arrived = unix_time();
  open->prompt = prepared.prompt;
  open->ticket = std::move(ticket);
  if (Outcome closed = to.outbox->open(std::move(open)); !closed.ok()) return closed;
  try {
    const service::RequestId request = service.start(
        std::move(prepared), [outbox = to.outbox, id = to.id, &service](service::Reply reply) {
          if (const auto failed = outbox->put(id, std::move(reply))) service.cancel(*failed);
        });
    if (to.outbox->started(to.id, request)) service.cancel(request);
  } catch (...) {
    to.outbox->drop(to.id);
    throw;
  }
  return {};
}

Outcome submit_generation(const Submission& to, std::string_view body, Endpoint endpoint) {
  service::ProtocolContext& protocol = to.loaded.protocol();
  auto admitted = protocol.admission.admit();
  if (const auto* refused = std::get_if<service::AdmissionRefusal>(&admitted))
    return outcome_of_refusal(*refused);
  auto parsed = parse_body(body);
  if (!parsed) return outcome_of(parsed.error());
  const JsonOwner<OrderedJson> json(std::move(*parsed));
  const char* input = endpoint == Endpoint::kChat ? "messages" : "prompt";
  auto call = openai::parse_openai_call(*json, endpoint, protocol.config.defaults);
  if (!call) return outcome_of(call.error(), input);
  if (Outcome refused = check_call(*call, protocol); !refused.ok()) return refused;
  if (Outcome refused = check_fit(*call); !refused.ok()) return refused;
  service::Request request = call->request;
  request.streamed = call->stream;
  auto prepared =
      to.loaded.service().prepare_all(std::move(request), std::exchange(call->prompts, {}));
  if (!prepared) return outcome_of(prepared.error(), input);
  if (const auto refused = protocol.admission.check_queue(*prepared))
    return outcome_of_refusal(*refused);
  return start(to, std::move(*call), std::move(prepared->front()),
               std::move(std::get<service::Ticket>(admitted)));
}

Outcome submit_completion(const Submission& to, std::string_view body) {
  return submit_generation(to, body, Endpoint::kCompletions);
}

Outcome submit_chat(const Submission& to, std::string_view body) {
  return submit_generation(to, body, Endpoint::kChat);
}

// A body with one input that is pooled as `kind` says.
Outcome submit_pooled(const Submission& to, std::string_view body, const pooling::RouteKind& kind,
                      const service::PooledModel& model, bool classes) {
  service::ProtocolContext& protocol = to.loaded.protocol();
  service::Service& service = to.loaded.service();
  auto admitted = protocol.admission.admit();
  if (const auto* refused = std::get_if<service::AdmissionRefusal>(&admitted))
    return outcome_of_refusal(*refused);
  auto parsed = parse_body(body);
  if (!parsed) return outcome_of(parsed.error());
  const JsonOwner<OrderedJson> json(std::move(*parsed));
  auto call = pooling::parse_call(*json, kind);
  if (!call) return outcome_of(call.error(), "input");
  if (Outcome refused = check_call(*call, protocol); !refused.ok()) return refused;
  if (const Status fits = service::check_dimensions(model, call->dimensions); !fits)
    return outcome_of(fits.error(), "input");
  auto inputs = pooling::prompts_of(*call, model, service);
  if (!inputs) return outcome_of(inputs.error(), "input");
  if (inputs->size() != 1)
    return invalid("input",
                   fmt::format("input holds {} texts; submit each by itself", inputs->size()));
  auto prepared = service.prepare_all(call->request, std::move(*inputs));
  if (!prepared) return outcome_of(prepared.error(), "input");
  if (const auto refused = protocol.admission.check_queue(*prepared))
    return outcome_of_refusal(*refused);
  return start(to, OpenAiCall{}, std::move(prepared->front()),
               std::move(std::get<service::Ticket>(admitted)),
               Pooled{.classes = classes,
                      .dimensions = call->dimensions,
                      .normalize = call->normalize.value_or(model.normalize),
                      .activation = call->activation.value_or(model.activation)});
}

Outcome submit_embedding(const Submission& to, std::string_view body) {
  const service::PooledModel* model = to.loaded.service().pooled_model();
  if (!model || model->task != service::PooledModel::kEmbed)
    return {.status = SKIFF_UNSUPPORTED,
            .what =
                "this model gives no embeddings: load it with the options runner \"pooling\" "
                "and convert \"embed\"",
            .field = "kind"};
  return submit_pooled(to, body, pooling::embeddings_route(), *model, /*classes=*/false);
}

// A reward model's scores are those of classes without activation, unless the body asks for it.
Outcome submit_classify(const Submission& to, std::string_view body) {
  const service::PooledModel* model = to.loaded.service().pooled_model();
  if (!model || model->task == service::PooledModel::kEmbed)
    return {.status = SKIFF_UNSUPPORTED,
            .what =
                "this model has no classes: load one that has with the options runner \"pooling\" "
                "and convert \"classify\"",
            .field = "kind"};
  return submit_pooled(to, body, pooling::classify_route(), *model, /*classes=*/true);
}

// A new kind of request is a line here.
struct Kind {
  std::string_view name;
  Outcome (*submit)(const Submission& to, std::string_view body);
};
constexpr std::array kKinds = {Kind{"completion", submit_completion}, Kind{"chat", submit_chat},
                               Kind{"embedding", submit_embedding},
                               Kind{"classify", submit_classify}};

}  // namespace

Outcome submit(const Submission& to, std::string_view kind, std::string_view body) {
  std::string names;
  for (const Kind& known : kKinds) {
    if (known.name == kind) return known.submit(to, body);
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", known.name);
  }
  return invalid("kind", fmt::format("kind is one of {}, not \"{}\"", names, kind.substr(0, 64)));
}

Outcome tokenize(Loaded& loaded, std::string_view body, std::string* json) {
  auto parsed = parse_body(body);
  if (!parsed) return outcome_of(parsed.error());
  const JsonOwner<OrderedJson> owner(std::move(*parsed));
  const bool chat = (*owner).is_object() && (*owner).contains("messages");
  auto call = openai::parse_openai_call(*owner, chat ? Endpoint::kChat : Endpoint::kCompletions,
                                        loaded.protocol().config.defaults);
  const char* input = chat ? "messages" : "prompt";
  if (!call) return outcome_of(call.error(), input);
  if (Outcome refused = check_call(*call, loaded.protocol()); !refused.ok()) return refused;
  if (Outcome refused = check_fit(*call); !refused.ok()) return refused;
  call->request.input = std::move(call->prompts.front());
  const auto tokens = loaded.service().tokenize(call->request);
  if (!tokens) return outcome_of(tokens.error(), input);
  JsonWriter writer(*json);
  writer.open_object().key("tokens");
  openai::write_token_ids(*tokens, writer);
  writer.close_object();
  return {};
}

Outcome detokenize(Loaded& loaded, std::string_view body, std::string* json) {
  auto parsed = parse_body(body);
  if (!parsed) return outcome_of(parsed.error());
  const JsonOwner<OrderedJson> owner(std::move(*parsed));
  if (!(*owner).is_object() || !(*owner).contains("tokens"))
    return {.status = SKIFF_NOT_FOUND, .what = "tokens is required", .field = "tokens"};
  std::vector<Token> tokens;
  if (auto problem = openai::read_token_ids((*owner)["tokens"], tokens))
    return invalid("tokens", "tokens " + problem->what);
  const service::Service& service = loaded.service();
  size_t bytes = 0;
  const size_t most = service::Service::max_text(service.max_model_len());
  for (const Token token : tokens) {
    if (token >= service.tokenizer().vocab_size())
      return invalid("tokens", fmt::format("tokens has id {}, but the vocabulary is [0, {})", token,
                                           service.tokenizer().vocab_size()));
    bytes += service.tokenizer().piece(token).size();
    if (bytes > most)
      return invalid("tokens", fmt::format("tokens stand for more than {} bytes of text", most));
  }
  bool skip_special = true;
  if ((*owner).contains("skip_special_tokens"))
    if (auto problem = openai::read_boolean((*owner)["skip_special_tokens"], skip_special))
      return invalid("skip_special_tokens", "skip_special_tokens " + problem->what);
  JsonWriter writer(*json);
  writer.open_object().key("text").string(service.tokenizer().decode(tokens, skip_special));
  writer.close_object();
  return {};
}

}  // namespace skiff::capi
