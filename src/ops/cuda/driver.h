// ops/cuda/driver.h -- functions of the CUDA driver, looked up at run time, so that nothing links
// to the driver.
#pragma once

namespace skiff::cuda {

// Returns the driver's function `name` in the form that it has had since CUDA `version` (1000 *
// major + 10 * minor). Throws DeviceError where the installed driver is older. Thread-safe.
void* driver_function(const char* name, unsigned version);

// F is the function's type, as cuda.h declares it.
template <class F>
F driver_function(const char* name, unsigned version) {
  return reinterpret_cast<F>(driver_function(name, version));
}

}  // namespace skiff::cuda
