#include "base/random.h"

#include <random>

namespace skiff {

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) ^ device();
}

}  // namespace skiff
