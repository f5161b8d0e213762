// serve/ollama/embed.h -- Ollama's two forms of a request for embeddings, over what the room
// serve/pooling does with any such request.
#pragma once
#include "serve/pooling/route.h"

namespace skiff::ollama {

// POST /api/embed: texts become {"embeddings"}, each of length one, as Ollama has them.
const pooling::RouteKind& embed_kind();
// POST /api/embeddings, its older form: one text becomes {"embedding"}, as the model gives it.
const pooling::RouteKind& embedding_kind();

}  // namespace skiff::ollama
