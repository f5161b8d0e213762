// apps/open_files.h -- computes how many connections the open-file limit leaves room for.
#pragma once
#include <cstdint>

namespace skiff::apps {

// Returns how many of the `wanted` connections fit into `limit` open files together with `probes`
// connections for probes and the files that the process itself needs. Throws LoadError if not even
// one fits.
int connections_that_fit(int wanted, int probes, uint64_t limit);

// Raises the soft limit of open files to the hard one and returns it.
uint64_t raise_open_file_limit();

}  // namespace skiff::apps
