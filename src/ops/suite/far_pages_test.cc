// A cache whose pages lie so far apart that 32-bit indices would not reach them.
#include <sys/mman.h>

#include "ops/suite/attention.h"
#include "tensor/memory.h"

namespace skiff::suite {
namespace {

constexpr int kPages = 3, kPageSize = 16;
constexpr int64_t kStride = int64_t{1} << 31;  // elements

// Memory that uses no physical pages before it is written to.
class Sparse {
 public:
  Sparse(Device device, size_t size) : size_(size) {
    if (device != Device{}) {
      on_device_ = Buffer(device, size);
      return;
    }
    void* const got = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got != MAP_FAILED) on_host_ = got;
  }
  ~Sparse() {
    if (on_host_ != nullptr) munmap(on_host_, size_);
  }
  Sparse(const Sparse&) = delete;
  void* data() const { return on_host_ != nullptr ? on_host_ : on_device_.data(); }

 private:
  size_t size_;
  void* on_host_ = nullptr;
  Buffer on_device_;
};

// Each of three sequences has one position on a page of its own, so attention gives its value back:
// another's if an index has wrapped around.
TEST_P(OpSuite, PagesMayLieBeyond32BitIndices) {
  const Gqa spec = gqa(2, 1, 64);
  const int64_t half = int64_t{kPageSize} * 64;
  const auto elements = static_cast<size_t>((kPages - 1) * kStride + 2 * half);
  const Sparse memory(ops->device(), elements * bytes(DType::kBF16));
  if (memory.data() == nullptr) GTEST_SKIP() << "no room in the address space";
  KvLayer kv{.k = {.data = memory.data(),
                   .dim = {kPages, kPageSize, 1, 64},
                   .row_stride = kStride,
                   .dtype = DType::kBF16,
                   .device = ops->device()},
             .v = {},
             .page_size = kPageSize};
  kv.v = kv.k;
  kv.v.data = static_cast<std::byte*>(memory.data()) + static_cast<size_t>(half) * 2;

  Workspace ws(31);
  Paged paged(ws, spec, DType::kBF16, kPageSize, std::vector<Piece>(kPages, Piece{0, 1}));
  RaggedBatch batch = paged.batch;
  batch.pages = ws.ints({0, 1, 2}, {kPages, 1});
  const Tensor qkv = ws.random(DType::kBF16, {kPages, int64_t{4} * 64});
  const Tensor out = ws.output(DType::kBF16, {kPages, int64_t{2} * 64});
  ws.begin_op({qkv, out});
  ops->begin_step(batch, {});
  ops->gqa_store(qkv, {}, {}, spec, batch, kv);
  ops->gqa_attend(out, qkv.col_range(0, out.cols()), spec, batch, kv);
  ws.end_op();
  for (int64_t r = 0; r < kPages; ++r)
    for (int64_t i = 0; i < out.cols(); ++i)
      ASSERT_EQ(at(out, r, i), at(qkv, r, qkv.cols() - 64 + i % 64)) << r << ", " << i;
}

}  // namespace
}  // namespace skiff::suite
