#include "comm/communicator.h"
#include "tensor/convert.h"

namespace skiff {
namespace {

class Solo final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(Tensor) override {}
  void all_gather(Tensor out, Tensor x) override {
    if (out.data != x.data) convert(out, x);
  }
  void broadcast(std::span<std::byte>, int) override {}
};

}  // namespace

std::unique_ptr<Communicator> make_solo() { return std::make_unique<Solo>(); }

Mesh make_solo_mesh() { return {.tp = make_solo()}; }

}  // namespace skiff
