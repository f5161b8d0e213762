// ops/suite/service.h -- a device's Ops as steps use it in service, for cases that know nothing
// of that: overlapped, recorded and replayed.
#pragma once
#include <functional>
#include <memory>

#include "ops/ops.h"

namespace skiff::suite {

// An Ops that hands each operation to the one that `make` makes several times over: as it comes,
// while a graph is recorded, and replayed from that graph, waiting only at the end.
// Each time the outputs and the float inputs are spoilt first, and a kernel right before the
// operation writes the inputs: a kernel that reads before its griddepcontrol.wait what it must not
// sees NaN. All times must give the same bits. Products have their algorithms chosen by measuring
// before. Tensors are in page-locked host memory, as in the synchronous suite.
std::unique_ptr<Ops> make_in_service(std::function<std::unique_ptr<Ops>()> make);

}  // namespace skiff::suite
