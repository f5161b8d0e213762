// grammar/fuel.h -- work in counted units, so that a limit falls at the same place on every machine
// and under every load.
#pragma once
#include <cstdint>

namespace skiff::grammar {

// One unit is roughly the visit of one expression, 20 to 100 ns. Who finds it empty gives a wrong
// answer on purpose and lets the caller, who looks at empty() before it uses any, refuse.
class Fuel {
 public:
  explicit Fuel(int64_t units) : left_(units) {}
  // Returns false when nothing is left.
  bool burn(int64_t units = 1) {
    left_ -= units;
    return left_ >= 0;
  }
  bool empty() const { return left_ < 0; }
  int64_t left() const { return left_; }
  void refill(int64_t units) { left_ = units; }

 private:
  int64_t left_;
};

}  // namespace skiff::grammar
