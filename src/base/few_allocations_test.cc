#include "base/few_allocations_testing.h"

#include <cstdlib>
#include <new>

namespace skiff::testing {

thread_local long allowed_allocations = -1;

}  // namespace skiff::testing

void* operator new(size_t bytes) {
  long& allowed = skiff::testing::allowed_allocations;
  if (allowed == 0) throw std::bad_alloc();
  if (allowed > 0) --allowed;
  if (void* out = std::malloc(bytes == 0 ? 1 : bytes)) return out;
  throw std::bad_alloc();
}
// The default one calls that above, but AddressSanitizer's does not, and its memory is not for
// free().
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
