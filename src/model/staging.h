// model/staging.h -- copies the values of one slot after the other to the memory of Ops, read by
// several threads, and quantizes them on the way where they are kept so. Weights that the
// checkpoint has quantized come as they are.
#pragma once
#include <vector>

#include "model/code_buffer.h"
#include "model/read_ahead.h"
#include "model/values.h"
#include "ops/ops.h"

namespace skiff::model {

// Where Ops computes on the host, a slot's values are put together in memory that is reused from
// slot to slot. For a device threads fill a ring of small page-locked pieces, ahead of slots too,
// and each piece is copied to such memory on the device while the next ones are read.
//
// A slot that is kept quantized is never there as floats. Bands of its rows, with their scales, are
// read where they belong, on a device by way of the ring; or, where they are quantized here, they
// are read into a ring, on a device copied there, and quantized where Ops computes.
class Staging {
 public:
  // `kept` says what becomes of each slot. `chunk`: bytes that a thread reads at a time, rounded to
  // whole rows, at least one; bands are whole rows of blocks. All must outlive the staging.
  Staging(const Values& values, const std::vector<Slot>& slots, const std::vector<Kept>& kept,
          const ModelSpec& spec, Ops& ops, int threads, size_t chunk);

  // [out, in] or [experts, out, in] (norms and vectors [out]), or a quantized weight in the format
  // that it is kept in, with its order of columns and the scales of its activations; kPlain. The
  // bias is [out] f32 or empty. Slots must be taken in their order, each once, without tied heads.
  // On a device the values are in place for the next operations of Ops. Valid until the next call.
  // Throws a LoadError that names the weight where a value that is to be quantized, or one of a
  // vector, is not finite.
  Linear take(size_t slot);

 private:
  // The unit of work of a reading thread: rows of a weight, or a bias.
  struct Chunk {
    size_t slot;
    bool bias;
    int64_t first, rows;
  };
  void add_chunks(size_t slot, size_t bytes);
  bool quantizes(const Chunk& chunk) const;
  bool has_codes(const Chunk& chunk) const;
  Tensor place_of(const Chunk& chunk) const;
  Tensor as_rows(const Chunk& chunk, const Buffer& buffer) const;
  size_t bytes_of(const Chunk& chunk) const;
  void fill(const Chunk& chunk, std::byte* to) const;
  void quantize(const Chunk& chunk, Tensor plain);
  void fill_here(size_t begin, size_t end);
  void quantize_here(size_t begin, size_t end);
  void bring(size_t begin, size_t end);
  void bring_codes(const Chunk& chunk, const Buffer& piece);
  void add_small_parts(Linear& out, size_t slot);
  void make_ring(size_t pieces, size_t bytes);

  const Values& values_;
  const std::vector<Slot>& slots_;
  const std::vector<Kept>& kept_;
  Ops& ops_;
  const int threads_;
  std::vector<Chunk> chunks_;
  size_t taken_ = 0;
  Buffer weight_, bias_;  // on the device of Ops, as large as the largest slot needs; of a slot
                          // that is quantized, one band
  Buffer order_, input_scale_;  // belong to the slot that was taken last
  CodeBuffer codes_;
  std::vector<Buffer> ring_;  // page-locked for a device; on the host only for bands
  // Only for a device: the mark of the last copy from the ring.
  uint64_t copied_ = 0;
  bool copying_ = false;
  std::unique_ptr<ReadAhead> ahead_;
};

}  // namespace skiff::model
