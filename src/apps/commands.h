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

namespace skiff {

int run_serve(const Args& args);
int run_predict(const Args& args);
int run_chat(const Args& args);
int run_bench(const Args& args);  // first positional: latency or throughput
int run_tokenize(const Args& args);
int run_inspect(const Args& args);

// What commands share.

// The model folder: --model or the first positional at or after `index`; nothing else may follow.
std::string model_folder(const Args& args, size_t index = 0);
EngineConfig engine_config(const Args& args, const std::string& folder);
SamplingParams sampling_params(const Args& args);

// --tokenizer, or the model's folder.
std::string tokenizer_folder(const Args& args, const std::string& folder);
// From that folder. Throws LoadError.
std::shared_ptr<const Tokenizer> need_tokenizer(const Args& args, const std::string& folder);
// Null if neither the folder nor --chat-template has one; throws LoadError if it is broken.
std::shared_ptr<const ChatTemplate> find_chat_template(const Args& args, const std::string& folder);

// A file with the template's variables: "messages", "tools", "add_generation_prompt",
// "continue_final_message", any others. Where it does not say whether the reply is opened, it is
// unless the last message is to be continued. Throws LoadError.
Conversation read_conversation(const std::string& path);

// `skiff tokenize --chat FILE`: prints the prompt and nothing else. Returns the exit code.
int render_conversation(const Args& args, const std::string& folder);

// What ends a reply: the EOS ids of generation_config.json and of config.json, and what the
// tokenizer calls EOS. Ids that the vocabulary does not have are left out. `tokenizer` may be null.
std::vector<Token> eos_tokens(const ModelConfig& model, const Tokenizer* tokenizer);

}  // namespace skiff
