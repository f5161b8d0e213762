// sample/edit_store.h -- keeps lists of edits where Ops computes: a list is sent once, and
// afterwards only its changed entries.
#pragma once
#include <cstddef>
#include <vector>

#include "ops/ops.h"
#include "sample/edit_list.h"
#include "sample/staging.h"

namespace skiff::sample {

// Memory is allocated once: room for kFullLists lists that name the whole vocabulary and kSlotPages
// pages for each slot. Lists that a draw does not use make room for those that it uses; a list that
// does not fit even then is sent in pieces for each draw, which is correct but slow.
//
// For a draw, call begin(), then add() for each row, then apply(). Rows with two lists repeat add()
// and apply() for the second list, which is applied to the result of the first. Driven by the
// thread that drives `ops`.
class EditStore {
 public:
  static constexpr int kPage = 1024;  // entries of a page
  static constexpr int kFullLists = 64, kSlotPages = 4;

  EditStore(Ops& ops, Staging& staging, int vocab, int max_slots);
  EditStore(const EditStore&) = delete;
  EditStore& operator=(const EditStore&) = delete;
  // What is allocated where Ops computes.
  static size_t bytes(int vocab, int max_slots);

  // Begins a draw, for which the staging has begun.
  void begin(Tensor logits);
  // Adds all edits of the list to row `row`.
  void add(int row, EditList& list);
  void apply();
  void release(EditList& list);
  uint64_t sent() const { return sent_; }  // entries sent since the start

 private:
  struct Piece {
    int32_t row, page, count, first;
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
  void add_in_passing(int row, const EditList& list);

  Ops& ops_;
  Staging& staging_;
  Buffer memory_;
  EditPages pages_;
  std::vector<int32_t> free_;
  std::vector<EditList*> there_;
  uint64_t draw_ = 0;
  Tensor logits_;
  std::vector<Piece> pieces_;
  std::vector<Change> changes_;
  uint64_t sent_ = 0;
};

}  // namespace skiff::sample
