// apps/serve_node.h -- `skiff serve` where one model is spread over several nodes.
#pragma once
#include <string>

#include "apps/args.h"
#include "nodes/settings.h"
#include "peer/wire.h"
#include "text/tokenizer.h"

namespace skiff::apps {

// What nodes must agree on besides what the engine compares: the tokens, and how constraints on
// them are read, because every rank draws for itself.
peer::Facts drawing_facts(const Args& args, const text::Tokenizer& tokenizer);

// Serves as a node other than the first: it computes for node 0 and answers no requests of its own.
// Returns the exit code: 0 when node 0 has dismissed it, kExitFailed when the group has ended
// because a node was lost. Throws LoadError.
int run_node(const Args& args, const std::string& folder, nodes::Settings settings,
             const text::Tokenizer& tokenizer);

}  // namespace skiff::apps
