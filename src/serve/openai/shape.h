// serve/openai/shape.h -- what tells the chat endpoint's JSON from the completions endpoint's.
#pragma once
#include <memory>
#include <string>

#include "base/json.h"
#include "base/json_writer.h"
#include "serve/openai/params.h"
#include "serve/service/service.h"

namespace skiff {

// What the replies to one prompt share.
struct PromptInfo {
  std::vector<Token> tokens;
  std::string echo;  // the text that echo puts first
};

// One event of a stream, as JSON text.
struct ChoiceEvent {
  std::string choice;       // the one object of "choices"
  std::string beside = {};  // members of the event beside "choices", each with a comma before it
};

// One choice: the JSON of its pieces as they come, or of all of them at the end. Not thread-safe.
class ChoiceWriter {
 public:
  virtual ~ChoiceWriter() = default;
  // What a stream sends for this piece: none, one or two events.
  virtual std::vector<ChoiceEvent> stream(Reply reply) = 0;
  virtual void gather(Reply reply) = 0;
  // The choice of all that was gathered, under this index.
  virtual void whole(int index, JsonWriter& json) = 0;
};

class OpenAiShape {
 public:
  virtual ~OpenAiShape() = default;
  virtual const char* id_prefix() const = 0;
  virtual const char* object() const = 0;
  virtual const char* chunk_object() const = 0;
  // Members of a whole reply beside "choices", each with a comma before it. `prompts` as they were
  // asked for.
  virtual std::string beside(const OpenAiCall& call, const std::vector<PromptInfo>& prompts) const {
    static_cast<void>(call), static_cast<void>(prompts);
    return {};
  }
  // All arguments outlive the writer.
  virtual std::unique_ptr<ChoiceWriter> writer(int index, const OpenAiCall& call,
                                               const PromptInfo& prompt,
                                               const Tokenizer& tokenizer) const = 0;
};

const OpenAiShape& chat_shape();
const OpenAiShape& completions_shape();

// "stop", "length", or null while it goes on, as JSON.
std::string_view finish_reason(Finish finish);
void write_stop_reason(const Reply& reply, JsonWriter& json);
void write_token_ids(const std::vector<Token>& tokens, JsonWriter& json);
Json usage_json(const Usage& usage);
// What comes later goes behind what came before.
void append(Reply& whole, Reply piece);

}  // namespace skiff
