// serve/openai/shape.h -- the differences between the JSON of the chat and completions endpoints.
#pragma once
#include <memory>
#include <string>

#include "base/json.h"
#include "base/json_writer.h"
#include "serve/openai/params.h"
#include "serve/service/protocol_config.h"
#include "serve/service/service.h"

namespace skiff::openai {

// Data that all choices of one prompt share.
struct PromptInfo {
  std::vector<Token> tokens;
  std::string echo;    // the text that echo returns first
  bool split = false;  // replies come in parts
};

// One event of a stream, as JSON text.
struct ChoiceEvent {
  std::string choice;       // the one object of "choices"
  std::string beside = {};  // members of the event beside "choices", each with a comma before it
};

// Writes the JSON of one choice: for each piece of a stream, or once for the whole reply. Not
// thread-safe.
class ChoiceWriter {
 public:
  virtual ~ChoiceWriter() = default;
  // Returns the events of a stream for this piece: none, one or two.
  virtual std::vector<ChoiceEvent> stream(service::Reply reply) = 0;
  virtual void gather(service::Reply reply) = 0;
  // Returns what the whole reply has beside its choices because of the first of them, each member
  // with a comma before it.
  virtual std::string beside() const { return {}; }
  // Writes the choice from all gathered pieces, under this index.
  virtual void whole(int index, JsonWriter& json) = 0;
};

// What a writer reads; all of it outlives the writer.
struct WriterContext {
  const OpenAiCall& call;
  const PromptInfo& prompt;
  const text::Tokenizer& tokenizer;
  const service::ProtocolConfig& config;
};

class OpenAiShape {
 public:
  virtual ~OpenAiShape() = default;
  virtual const char* id_prefix() const = 0;
  virtual const char* object() const = 0;
  virtual const char* chunk_object() const = 0;
  // Returns the members of a whole reply beside "choices", each with a comma before it. `prompts`
  // are in the order of the request.
  virtual std::string beside(const OpenAiCall& call, const std::vector<PromptInfo>& prompts) const {
    static_cast<void>(call), static_cast<void>(prompts);
    return {};
  }
  virtual std::unique_ptr<ChoiceWriter> writer(int index, const WriterContext& context) const = 0;
};

const OpenAiShape& chat_shape();
const OpenAiShape& completions_shape();

// Returns "stop", "length", or null while the choice goes on, as JSON.
std::string_view finish_reason(Finish finish);
void write_stop_reason(const service::Reply& reply, JsonWriter& json);
void write_token_ids(const std::vector<Token>& tokens, JsonWriter& json);
Json usage_json(const service::Usage& usage);
// Appends a later piece to `whole`.
void append(service::Reply& whole, service::Reply piece);

}  // namespace skiff::openai
