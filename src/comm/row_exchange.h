// comm/row_exchange.h -- a group whose ranks have rows of their own, of which each computes a part
// for all of them: replicas that share the experts of a mixture. A group of one moves nothing.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace skiff::comm {

// How many rows the ranks have in a pass: the one that has most, and all together.
struct RowsOfRanks {
  int64_t most = 0, sum = 0;
};

// All ranks call dispatch() and combine() as often and in the same order, whether they have rows or
// not. Like a collective of a Communicator, each belongs to the queue of the Ops that it is given.
// What becomes of a row depends neither on other rows nor on the rank that it belongs to.
class RowExchange {
 public:
  virtual ~RowExchange() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Says how many rows there will be in the passes that follow, all ranks the same; without a
  // value, each has as many as this one. Only an exchange whose hosts do not meet needs to know.
  virtual void expect(const std::optional<RowsOfRanks>& /*rows*/) {}
  // Returns the rows of all ranks, those of rank 0 first. x [rows, cols] are those of this one;
  // there may be none. The result lies in the arena, or is x. Padding rows of a step, which are its
  // last ones, may be left out; then so many rows at the end have no meaning, and Ops::route()
  // takes them for padding.
  virtual Tensor dispatch(Tensor x, Arena& arena, Ops& ops) = 0;
  // `parts` [rows of all ranks, cols] is what this rank has computed for all rows, f32 or bf16, and
  // `rows` how many of them are its own. Returns, for these, the sums of all ranks' parts, taken in
  // float32, one rank after the other from rank 0 on, and rounded once. The result lies in the
  // arena, or is `parts`.
  virtual Tensor combine(Tensor parts, int64_t rows, Arena& arena, Ops& ops) = 0;

  // Each rank calls it once, when it has started; returns when all have. On devices no host waits
  // for another in a collective from then on (comm/devices/group.h).
  virtual void begin_service() { least(0); }
  // These do what Communicator::least() and abort() do, among the ranks of this exchange.
  virtual int64_t least(int64_t mine) { return mine; }
  virtual void abort(const std::string& /*why*/) {}
};

std::unique_ptr<RowExchange> make_solo_exchange();
// Makes a group of `size` ranks, one for each thread of this process, whose Ops compute on the
// host. The group lives until the last of them is destroyed.
std::vector<std::unique_ptr<RowExchange>> make_thread_exchanges(int size);

// Returns the bytes of the arena that dispatch(), and then combine(), hold where each of `size`
// ranks has at most `rows` rows.
size_t exchange_bytes(int size, int64_t rows, int64_t cols, DType dtype);

}  // namespace skiff::comm
