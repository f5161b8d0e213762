// apps/journal_flags.h -- the flags of `skiff serve` about the request log and traces.
#pragma once
#include <memory>

#include "apps/args.h"
#include "serve/journal/journal.h"

namespace skiff::apps {

// Null if neither is asked for. Reads $OTEL_EXPORTER_OTLP_HEADERS and $OTEL_SERVICE_NAME. Throws
// LoadError.
std::shared_ptr<journal::Journal> make_journal(const Args& args);

// The list NAME=VALUE,NAME=VALUE, whose parts are percent-encoded, as OpenTelemetry defines it. An
// error never contains a value.
Result<std::vector<std::pair<std::string, std::string>>> otlp_headers(std::string_view text);

}  // namespace skiff::apps
