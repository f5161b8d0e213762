// serve/turn/turn.h -- one answer to one conversation, for protocols whose streams consist of named
// events: what they share.
//
// Such a protocol translates its request into the body of a chat completion, whose fields and
// checks (serve/openai) then hold for it, and writes the parts of the answer in its own form.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "serve/http/api_error.h"
#include "serve/http/api_keys.h"
#include "serve/http/route_table.h"
#include "serve/service/protocol_context.h"

namespace skiff::turn {

// What a writer knows of the request.
struct TurnInfo {
  std::string id;  // without a prefix
  std::string model;
  int64_t created = 0;  // Unix seconds
  int prompt_tokens = 0;
};

// The request as the client sent it. The tree lives for the call only: it may take many times the
// memory of its text, and an answer may take minutes. Who keeps a part of the text keeps `counted`
// as long (http::HttpRequest).
struct TurnBody {
  const OrderedJson& json;
  const std::shared_ptr<const void>& counted;
};

// Writes one answer: either open(), piece() for each piece, or whole(). Replies come with their
// text in parts, whatever the model. Not thread-safe.
class TurnWriter {
 public:
  virtual ~TurnWriter() = default;
  // Each returns text for the stream: whole events.
  virtual std::string open() = 0;
  virtual void note_first_token() {}  // called once, before any piece and before whole()
  virtual std::string piece(const service::Reply& reply) = 0;  // with `finish`: the end as well
  virtual std::string failure(const http::ApiError& error) = 0;
  virtual std::string keep_alive() { return ": keep-alive\n\n"; }
  virtual const char* stream_type() const { return "text/event-stream; charset=utf-8"; }
  // The whole answer as a JSON object.
  virtual std::string whole(const service::Reply& answer) = 0;
};

// A field of a chat completion, and where a request has it: "options.num_predict" is a member of
// its object "options".
struct FieldName {
  std::string_view chat, own;
};

// Immutable; outlives its turns.
class TurnProtocol {
 public:
  virtual ~TurnProtocol() = default;
  // The body of a chat completion that asks for the same. Error::field names a field of `body`.
  virtual Result<OrderedJson> to_chat(const OrderedJson& body) const = 0;
  // The fields that to_chat() renames. Where a request has several of one name, the first counts.
  virtual std::span<const FieldName> renamed() const = 0;
  virtual http::HttpResponse refusal(const http::ApiError& error,
                                     const std::string& request_id) const = 0;
  virtual std::unique_ptr<TurnWriter> writer(TurnInfo info, const TurnBody& body) const = 0;
};

// A route that answers with turns of this protocol.
http::Route turn_route(const char* path, const TurnProtocol& protocol,
                       service::ProtocolContext& context, const http::ApiKeys& keys);

// A route that only counts: it answers {FIELD: number of prompt tokens}.
http::Route count_route(const char* path, const char* field, const TurnProtocol& protocol,
                        service::ProtocolContext& context);

// One event of a stream; `data` is a JSON object.
std::string sse_event(std::string_view name, std::string_view data);

}  // namespace skiff::turn
