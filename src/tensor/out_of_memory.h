// tensor/out_of_memory.h -- what Buffer throws where the host has no room.
#pragma once
#include "base/load_error.h"

namespace skiff {

// what() says how many bytes were asked for. OutOfDeviceMemory is the same for a device.
struct OutOfHostMemory : LoadError {
  using LoadError::LoadError;
};

}  // namespace skiff
