#include "comm/communicator.h"

namespace skiff::comm {
namespace {

class Solo final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(Tensor, Ops&) override {}
  void all_gather(Tensor out, Tensor x, Ops& ops) override {
    if (out.data != x.data) ops.copy(out, x);
  }
};

}  // namespace

std::unique_ptr<Communicator> make_solo() { return std::make_unique<Solo>(); }

Mesh make_solo_mesh() { return {.tp = make_solo()}; }

}  // namespace skiff::comm
