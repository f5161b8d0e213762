// model/staging.h -- copies the values of one slot after the other to the memory of Ops, read by
// several threads.
#pragma once
#include <vector>

#include "model/read_ahead.h"
#include "model/values.h"
#include "ops/ops.h"

namespace skiff::model {

// Where Ops computes on the host, a slot's values are put together in memory that is reused from
// slot to slot. For a device threads fill a ring of small page-locked pieces, ahead of slots too,
// and each piece is copied to such memory on the device while the next ones are read.
class Staging {
 public:
  // `chunk`: bytes that a thread reads at a time, rounded to whole rows, at least one. All must
  // outlive the staging.
  Staging(const Values& values, const std::vector<Slot>& slots, const ModelSpec& spec, Ops& ops,
          int threads, size_t chunk);

  // [out, in] or [experts, out, in] (norms and vectors [out]); the bias [out] f32 or empty.
  struct Plain {
    Tensor weight, bias;
  };
  // Slots must be taken in their order, each once, without tied heads. On a device the values are
  // in place for the next operations of Ops. Valid until the next call.
  Plain take(size_t slot);

 private:
  // The unit of work of a reading thread: rows of a weight, or a bias.
  struct Chunk {
    size_t slot;
    bool bias;
    int64_t first, rows;
  };
  void add_chunks(size_t slot, size_t bytes);
  Tensor place_of(const Chunk& chunk) const;
  size_t bytes_of(const Chunk& chunk) const;
  void fill(const Chunk& chunk, std::byte* to) const;
  void fill_here(size_t begin, size_t end);
  void bring(size_t begin, size_t end);

  const Values& values_;
  const std::vector<Slot>& slots_;
  Ops& ops_;
  const int threads_;
  std::vector<Chunk> chunks_;
  size_t taken_ = 0;
  Buffer weight_, bias_;  // on the device of Ops, as large as the largest slot needs
  // Only for a device: the page-locked ring, and the mark of the last copy from it.
  std::vector<Buffer> ring_;
  uint64_t copied_ = 0;
  bool copying_ = false;
  std::unique_ptr<ReadAhead> ahead_;
};

}  // namespace skiff::model
