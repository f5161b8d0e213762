// serve/http/broken_stream.h -- the end of an answer that is passed on and broke off where it came
// from.
#pragma once
#include <string>
#include <string_view>

namespace skiff::http {

// Returns the last event of a stream that broke off, in the form of the protocol that the path
// belongs to; empty where a body of that media type is no stream of events.
std::string last_event(const std::string& path, std::string_view type, const std::string& why);

}  // namespace skiff::http
