// ops/suite/service.h -- runs the operations of a case as an engine's steps do, overlapped,
// recorded and replayed, without the case's knowing.
#pragma once
#include <functional>
#include <memory>

#include "ops/ops.h"

namespace skiff::suite {

// Returns an Ops that passes each operation several times to the Ops that `make` returns: directly,
// while a graph is recorded, and replayed from that graph, waiting only at the end. Each time the
// outputs and the float inputs are overwritten with NaN first, and a kernel right before the
// operation writes the inputs, so a kernel that reads them before its griddepcontrol.wait sees NaN.
// All runs must give the same bits. The algorithms of products have been chosen by measuring
// before. Tensors are in page-locked host memory, as in the synchronous suite.
std::unique_ptr<Ops> make_in_service(std::function<std::unique_ptr<Ops>()> make);

}  // namespace skiff::suite
