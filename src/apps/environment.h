// apps/environment.h -- the environment of PaddleNLP's server, as flags of `skiff serve`.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "apps/args.h"

namespace skiff::apps {

struct EnvironmentFlags {
  std::vector<std::string> words;      // as on a command line
  std::vector<std::string> variables;  // the names of those that the words come from
  std::vector<std::string> notes;      // for the log: what was taken
  std::string ignored;  // the names of what is set and has no effect here; may be empty
};

// Reads the ports and DISABLE_STREAMING, under their names of now and before. Names that may belong
// to anything, such as BATCH_SIZE, are read only where one of the ports is set, which shows that
// the environment is that server's. `look_up` returns null for what is not set.
EnvironmentFlags serve_environment(const std::function<const char*(const char*)>& look_up);

// Throws UsageError, with the variable's name, where one of the words is nothing that `command`
// takes. Whoever starts the server may not know that the variable is set: Kubernetes gives
// GRPC_PORT to every pod beside a service that is called grpc.
void check_environment(Commands command, const EnvironmentFlags& environment);

}  // namespace skiff::apps
