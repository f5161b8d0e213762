// apps/environment.h -- the environment of PaddleNLP's server, as flags of `skiff serve`.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace skiff::apps {

struct EnvironmentFlags {
  std::vector<std::string> words;  // as on a command line
  std::vector<std::string> notes;  // for the log: what was taken
  std::string ignored;             // the names of what is set and has no effect here; may be empty
};

// Reads the ports and DISABLE_STREAMING, under their names of now and before. Names that may belong
// to anything, such as BATCH_SIZE, are read only where one of the ports is set, which shows that
// the environment is that server's. `look_up` returns null for what is not set.
EnvironmentFlags serve_environment(const std::function<const char*(const char*)>& look_up);

}  // namespace skiff::apps
