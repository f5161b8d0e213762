// serve/control/query.h -- the parameters of a control request's query, one by one.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace skiff::control {

// The seconds that requests under way may take to finish, unless a query says otherwise.
constexpr double kWaitSeconds = 60;

Error invalid(std::string_view field, std::string what);

// Calls take(part) for each part between separators, while it returns ok.
Status for_each_part(std::string_view text, char separator,
                     const std::function<Status(std::string_view part)>& take);

// Calls take(key, value) for each parameter of a query, with percent escapes of the value decoded,
// while it returns ok. Error::field is the key to blame.
Status read_query(
    std::string_view query,
    const std::function<Status(std::string_view key, const std::string& value)>& take);

// Reads the value of "timeout".
Status read_seconds(const std::string& value, double& out);
// Reads "true" or "false", or 1 or 0.
Status read_switch(std::string_view key, const std::string& value, bool& out);

}  // namespace skiff::control
