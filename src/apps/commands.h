// apps/commands.h -- one function per command: takes the command line, returns the exit code.
// They throw UsageError for the command line and LoadError for everything that start-up meets.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/args.h"
#include "engine/llm.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer.h"

namespace skiff::apps {

int run_serve(const Args& args);
int run_predict(const Args& args);
int run_chat(const Args& args);
int run_bench(const Args& args);  // first positional: latency or throughput
int run_tokenize(const Args& args);
int run_inspect(const Args& args);
int run_constrain(const Args& args);
int run_quantize(const Args& args);
int run_route(const Args& args);
int run_start(const Args& args);     // has the flags of serve, too
int run_stop(const Args& args);      // first positional: seconds, as PaddleNLP's stop_server
int run_download(const Args& args);  // first positional: the model's name on the mirror

// Functions that several commands share.

// Returns the model folder: --model or the first positional at or after `index`; nothing else may
// follow.
std::string model_folder(const Args& args, size_t index = 0);
// What --runner, --convert, --task and --override-pooler-config ask for.
model::PoolingChoice pooling_choice(const Args& args);

engine::EngineConfig engine_config(const Args& args, const std::string& folder);
SamplingParams sampling_params(const Args& args);

// Returns --tokenizer, or the model's folder.
std::string tokenizer_folder(const Args& args, const std::string& folder);
// Loads the tokenizer from that folder. Throws LoadError.
std::shared_ptr<const text::Tokenizer> need_tokenizer(const Args& args, const std::string& folder);
// Returns null if neither the folder nor --chat-template has a template; throws LoadError if the
// template is broken.
std::shared_ptr<const text::ChatTemplate> find_chat_template(const Args& args,
                                                             const std::string& folder);

// Reads a file with the template's variables: "messages", "tools", "add_generation_prompt",
// "continue_final_message" and any others. Where "add_generation_prompt" is missing, it is true
// unless the last message is to be continued. Throws LoadError.
text::Conversation read_conversation(const std::string& path);

// `skiff tokenize --chat FILE`: prints the prompt and nothing else. Returns the exit code.
int render_conversation(const Args& args, const std::string& folder);

// Returns the tokens that end a reply: the EOS ids of generation_config.json and of config.json,
// and the tokenizer's EOS token. Ids outside the vocabulary are left out. `tokenizer` may be null.
std::vector<Token> eos_tokens(const model::ModelConfig& model, const text::Tokenizer* tokenizer);

}  // namespace skiff::apps
