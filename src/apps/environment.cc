#include "apps/environment.h"

#include <fmt/format.h>

#include <span>
#include <string_view>

namespace skiff::apps {
namespace {

struct Variable {
  const char* name;
  const char* older;  // its name before; null: it had none
  const char* flag;   // null: it has no effect here
};

constexpr Variable kPorts[] = {
    {"SERVICE_HTTP_PORT", "PUSH_MODE_HTTP_PORT", "port"},
    {"SERVICE_GRPC_PORT", "GRPC_PORT", "grpc-port"},
};

constexpr Variable kAlways[] = {
    {"DISABLE_STREAMING", nullptr, "disable-streaming"},
};

constexpr Variable kBesidePorts[] = {
    {"MAX_SEQ_LEN", nullptr, "max-model-len"},
    {"MAX_DEC_LEN", nullptr, "max-dec-len"},
    {"BATCH_SIZE", nullptr, "max-num-seqs"},
    {"BLOCK_SIZE", nullptr, "block-size"},
    {"PUSH_MODE_HTTP_WORKERS", nullptr, "workers"},
    {"HEALTH_HTTP_PORT", "HTTP_PORT", nullptr},
    {"METRICS_HTTP_PORT", "METRICS_PORT", nullptr},
    {"INTER_PROC_PORT", "INTER_QUEUE_PORT", nullptr},
    {"MODEL_DIR", nullptr, nullptr},
    {"MP_NUM", nullptr, nullptr},
    {"BLOCK_BS", nullptr, nullptr},
    {"BLOCK_RATIO", nullptr, nullptr},
    {"ENC_DEC_BLOCK_NUM", nullptr, nullptr},
    {"MAX_PREFILL_BATCH", nullptr, nullptr},
    {"MAX_CACHED_TASK_NUM", nullptr, nullptr},
    {"USE_CACHE_KV_INT8", nullptr, nullptr},
    {"USE_CACHE_KV_INT4", nullptr, nullptr},
    {"SPECULATE_METHOD", nullptr, nullptr},
};

}  // namespace

EnvironmentFlags serve_environment(const std::function<const char*(const char*)>& look_up) {
  EnvironmentFlags out;
  const auto read = [&](const Variable& variable) {
    const char* name = variable.name;
    const char* value = look_up(name);
    if (!value && variable.older) value = look_up(name = variable.older);
    // A port of -1 is one that is off.
    if (!value || std::string_view(value).empty() || std::string_view(value) == "-1") return false;
    if (!variable.flag) {
      out.ignored += (out.ignored.empty() ? "" : ", ") + std::string(name);
      return false;
    }
    out.words.push_back(fmt::format("--{}={}", variable.flag, value));
    out.variables.emplace_back(name);
    out.notes.push_back(fmt::format("--{} {} comes from ${}", variable.flag, value, name));
    return true;
  };
  bool is_paddle = false;
  for (const Variable& port : kPorts) is_paddle |= read(port);
  for (const Variable& variable : kAlways) read(variable);
  if (is_paddle)
    for (const Variable& variable : kBesidePorts) read(variable);
  return out;
}

void check_environment(Commands command, const EnvironmentFlags& environment) {
  for (size_t i = 0; i < environment.words.size(); ++i) {
    try {
      static_cast<void>(Args(command, std::span(environment.words).subspan(i, 1)));
    } catch (const UsageError& e) {
      throw UsageError(fmt::format("{}; it comes from ${}: unset that, or give it another value",
                                   e.what(), environment.variables[i]));
    }
  }
}

}  // namespace skiff::apps
