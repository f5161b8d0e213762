// sample/edit_store.h -- lists of edits where Ops computes: a list is sent once, and afterwards
// only those of its entries that have changed.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "ops/ops.h"
#include "ops/pinned_arena.h"
#include "sample/edit_list.h"

namespace skiff::sample {

// Memory is taken once: room for kFullLists lists that name the whole vocabulary and kSlotPages
// pages for each slot. What takes no part in a draw makes room for what does; a list for which
// there is none all the same is sent in pieces for each draw, which is right and slow.
//
// A draw: begin(), then add() for each row and apply(), and once more for rows with two lists, the
// second of which is applied to what the first one made. Driven by the thread that drives `ops`.
class EditStore {
 public:
  static constexpr int kPage = 1024;  // entries
  static constexpr int kFullLists = 64, kSlotPages = 4;

  EditStore(Ops& ops, int vocab, int max_slots);
  EditStore(const EditStore&) = delete;
  EditStore& operator=(const EditStore&) = delete;
  // Bytes taken where Ops computes, and the most page-locked bytes for what is on its way there.
  static size_t bytes(int vocab, int max_slots);
  static constexpr size_t kStagedBytes = size_t{12} << 20;

  // All that draws before the last two have asked for must be done.
  void begin(Tensor logits);
  // All edits of the list in row `row`, its logits divided by `divide` first (see LogitEdits).
  void add(int row, EditList& list, float divide = 1);
  void apply();
  void release(EditList& list);
  uint64_t sent() const { return sent_; }  // entries, since the start

 private:
  struct Piece {
    int32_t row, page, count, first;
    float divide;
  };
  struct Change {
    int32_t at;
    Edit edit;
  };

  static int pages_of(int vocab, int max_slots);
  bool reserve(EditList& list);
  int32_t take_page();
  void send_list(EditList& list);
  void change(int32_t at, const Edit& edit);
  void send_changes();
  void add_in_passing(int row, const EditList& list, float divide);
  PinnedArena& staging(size_t bytes);

  Ops& ops_;
  Buffer memory_;
  EditPages pages_;
  std::vector<int32_t> free_;
  std::vector<EditList*> there_;
  uint64_t draw_ = 0;
  Tensor logits_;
  std::vector<Piece> pieces_;
  std::vector<Change> changes_;
  // Page-locked memory, which draws use in turns, and how many bytes of this turn are in use.
  std::array<PinnedArena, 3> turns_;
  size_t staged_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace skiff::sample
