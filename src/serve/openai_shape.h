// serve/openai_shape.h -- what tells the chat endpoint's JSON from the completions endpoint's.
#pragma once
#include <memory>
#include <string>

#include "base/json.h"
#include "serve/openai_params.h"
#include "serve/service.h"

namespace skiff {

// What the replies to one prompt share.
struct PromptInfo {
  std::vector<Token> tokens;
  std::string echo;  // the text that echo puts first
};

// One choice: the JSON of its pieces as they come, or of all of them at the end. Not thread-safe.
class ChoiceWriter {
 public:
  virtual ~ChoiceWriter() = default;
  // The choice objects, as JSON text, that a stream sends for this piece: none, one or two.
  virtual std::vector<std::string> stream(Reply reply) = 0;
  virtual void gather(Reply reply) = 0;
  virtual Json whole() = 0;
};

class OpenAiShape {
 public:
  virtual ~OpenAiShape() = default;
  virtual const char* id_prefix() const = 0;
  virtual const char* object() const = 0;
  virtual const char* chunk_object() const = 0;
  // All arguments outlive the writer.
  virtual std::unique_ptr<ChoiceWriter> writer(int index, const OpenAiCall& call,
                                               const PromptInfo& prompt,
                                               const Tokenizer& tokenizer) const = 0;
};

const OpenAiShape& chat_shape();
const OpenAiShape& completions_shape();

// "stop", "length", or null while it goes on.
Json finish_reason(Finish finish);
Json stop_reason(const Reply& reply);
Json usage_json(const Usage& usage);
// What comes later goes behind what came before.
void append(Reply& whole, Reply piece);

}  // namespace skiff
