// serve/control/abort_body.h -- the body of a request to abort others.
#pragma once
#include "base/json.h"
#include "base/result.h"
#include "serve/service/service.h"

namespace skiff::control {

// Reads {LIST: [names]} or {"abort_all": true}. At most 4096 names of 1 to 256 bytes. Error::field
// is LIST or abort_all.
Result<service::AbortWish> read_abort(const OrderedJson& body, const char* list);

}  // namespace skiff::control
