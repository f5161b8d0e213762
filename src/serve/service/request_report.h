// serve/service/request_report.h -- what came of a request, for the metrics and for whoever
// observes requests. Private to EngineService.
#pragma once
#include <optional>

#include "serve/service/open_request.h"
#include "serve/service/request_observer.h"

namespace skiff::service {

// Reports a request that has ended; called once for each. `refusal` is why it was given up, if it
// was. `observer` may be null.
void report_end(const OpenRequest& request, std::optional<Refusal> refusal,
                RequestObserver* observer);

}  // namespace skiff::service
