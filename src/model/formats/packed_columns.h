// model/formats/packed_columns.h -- what formats share whose columns may come in an order of their
// own, sorted by the group whose scale they have.
#pragma once
#include "model/stored_format.h"

namespace skiff::model {

// Reads the group of each column from the module's tensor of kOrder, where it has one, and sets
// StoredModule::order. Throws a LoadError where groups are out of range or not of equal size.
void settle_order(StoredModule& module, int group);

}  // namespace skiff::model
