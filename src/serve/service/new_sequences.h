// serve/service/new_sequences.h -- what the engine is given of a request. Private to EngineService.
#pragma once
#include <cstddef>
#include <vector>

#include "message/request.h"
#include "serve/service/open_request.h"

namespace skiff::service {

// Returns the sequences of a request that begins. The last one takes the request's prompt, which is
// kept as OpenRequest::prompt where a sequence may have to resume.
std::vector<NewSequence> sequences_of(OpenRequest& request);

// Returns, under the name `id`, what is left of the sequence whose reasoning was ended by the
// service: its prompt is all that it has so far.
NewSequence rest_of(const OpenRequest& request, size_t index, SeqId id);

}  // namespace skiff::service
