// settle_drafts, take_back, and steps whose rows begin_step moves back.
#include <utility>

#include "ops/kv_quant.h"
#include "ops/suite/latent.h"

namespace skiff::suite {
namespace {

constexpr int kSlots = 40;

// A step of sequences with drafts, with what its rows have drawn, and what follows.
struct Settling {
  std::vector<int32_t> slots, drafts, draws, kept, row_start{0}, tokens, drawn, moved_slots;
  std::vector<int32_t> last, refused, moved, next, ends;
};

// Some drafts equal what the row before them draws. `forced`: so many are kept, whatever is drawn.
void add_sequence(Settling& s, Workspace& ws, int drafts, int right, int forced) {
  const auto i = s.slots.size();
  const size_t row = s.tokens.size();
  std::vector<int32_t> drawn;
  for (int j = 0; j <= drafts; ++j) drawn.push_back(ws.rng.below(1000));
  s.drafts.push_back(drafts);
  s.kept.push_back(forced);
  s.row_start.push_back(s.row_start.back() + 1 + drafts);
  s.tokens.push_back(ws.rng.below(1000));
  for (int j = 0; j < drafts; ++j)
    s.tokens.push_back(j == right ? drawn[static_cast<size_t>(j)] + 1000
                                  : drawn[static_cast<size_t>(j)]);
  s.drawn.insert(s.drawn.begin() + static_cast<long>(i), drawn.front());
  s.drawn.insert(s.drawn.end(), drawn.begin() + 1, drawn.end());
  const int kept = forced < 0 ? std::min(right, drafts) : forced;
  for (int j = 0; j <= drafts; ++j)
    s.next.push_back(j < kept ? s.tokens[row + 1 + static_cast<size_t>(j)]
                              : drawn[static_cast<size_t>(j)]);
  const auto slot = static_cast<size_t>(s.slots.emplace_back(s.slots.size() * 7 % kSlots));
  const bool behind = ws.rng.below(2) == 1;
  s.moved_slots.push_back(behind ? static_cast<int32_t>(slot) : -1);
  s.moved[slot] = drafts - kept + (behind ? s.refused[slot] : 0);
  s.refused[slot] = drafts - kept;
  s.last[slot] = s.next[row + static_cast<size_t>(kept)];
  s.ends.push_back(static_cast<int32_t>(row) + kept);
}

// A place without a sequence: nothing of it is read but its slot, and its end is a row.
void add_padding(Settling& s) {
  s.slots.push_back(-1);
  s.drafts.push_back(0);
  s.kept.push_back(-1);
  s.row_start.push_back(s.row_start.back());
  s.moved_slots.push_back(-1);
  s.ends.push_back(0);
}

TEST_P(OpSuite, DraftsAreSettledAsTheHostWould) {
  for (const int seqs : {1, 2, 5, 39}) {
    for (const bool moved : {false, true}) {
      Workspace ws(static_cast<uint64_t>(2 * seqs + moved));
      Settling s;
      for (auto* table : {&s.last, &s.refused, &s.moved})
        for (int i = 0; i < kSlots; ++i) table->push_back(ws.rng.below(moved ? 9 : 1));
      const Tensor last = ws.ints(s.last), refused = ws.ints(s.refused), about = ws.ints(s.moved);
      for (int i = 0; i < seqs; ++i) {
        const int drafts = ws.rng.below(5);
        add_sequence(s, ws, drafts, ws.rng.below(drafts + 1),
                     ws.rng.below(3) == 0 ? ws.rng.below(drafts + 1) : -1);
      }
      for (int i = 0; i < seqs % 3; ++i) add_padding(s);
      int32_t at = seqs;
      s.ends.resize(s.ends.size() + 3, 0);
      for (const int32_t drafts : s.drafts) s.draws.push_back(std::exchange(at, at + drafts));
      const Tensor next = ws.ints(std::vector<int32_t>(s.tokens.size(), -7)),
                   ends = ws.ints(std::vector<int32_t>(s.slots.size() + 3, -7));
      const DraftVerdicts in{.slots = ws.ints(s.slots),
                             .drafts = ws.ints(s.drafts),
                             .draws = ws.ints(s.draws),
                             .kept = ws.ints(s.kept),
                             .row_start = ws.ints(s.row_start),
                             .tokens = ws.ints(s.tokens),
                             .drawn = ws.ints(s.drawn),
                             .moved_slots = moved ? ws.ints(s.moved_slots) : Tensor{}};
      if (!moved)  // the tables hold zeros, so nothing is added
        for (size_t i = 0; i < static_cast<size_t>(seqs); ++i)
          s.moved[static_cast<size_t>(s.slots[i])] = s.refused[static_cast<size_t>(s.slots[i])];
      ws.begin_op({last, refused, about, next, ends});
      ops->settle_drafts(
          in, {.last = last, .refused = refused, .moved = about, .next = next, .ends = ends});
      finish();
      ws.end_op();
      EXPECT_EQ(all_bytes(last), all_bytes(ws.ints(s.last))) << seqs;
      EXPECT_EQ(all_bytes(refused), all_bytes(ws.ints(s.refused))) << seqs;
      EXPECT_EQ(all_bytes(about), all_bytes(ws.ints(s.moved))) << seqs;
      EXPECT_EQ(all_bytes(next), all_bytes(ws.ints(s.next))) << seqs;
      EXPECT_EQ(all_bytes(ends), all_bytes(ws.ints(s.ends))) << seqs;
    }
  }
}

TEST_P(OpSuite, NumbersOfDrawsAreTakenBack) {
  Workspace ws(3);
  const Tensor amounts = ws.ints({0, 3, 7, 1});
  const Tensor values = ws.output(DType::kI64, {300});
  std::vector<int32_t> slots;
  std::vector<int64_t> want;
  for (int64_t i = 0; i < 300; ++i) {
    slots.push_back(ws.rng.below(5) - 1);
    values.as<int64_t>()[i] = (int64_t{1} << 33) + i;
    want.push_back(values.as<int64_t>()[i] -
                   (slots.back() < 0 ? 0 : amounts.as<int32_t>()[slots.back()]));
  }
  const Tensor index = ws.ints(slots);
  ws.begin_op({values});
  ops->take_back(values, index, amounts);
  finish();
  ws.end_op();
  for (int64_t i = 0; i < 300; ++i)
    EXPECT_EQ(values.as<int64_t>()[i], want[static_cast<size_t>(i)]) << i;
  ops->take_back(values.row_range(0, 0), ws.ints({}), amounts);
  finish();
}

// A sequence's rows, and by how much they move back; -1: it is none of those.
struct MovedPiece {
  int begin, rows, by;
};

// At the edges of tiles and pages, before and behind the move.
const std::vector<MovedPiece> kMovedPieces = {{0, 1, -1},  {62, 1, 1},  {63, 2, 1}, {64, 2, 3},
                                              {127, 3, 2}, {1, 1, 5},   {60, 2, 0}, {200, 2, 4},
                                              {640, 2, 3}, {63, 1, 16}, {0, 2, 2},  {250, 4, 6}};

std::vector<Piece> pieces_of(const std::vector<MovedPiece>& all, bool moved) {
  std::vector<Piece> out;
  out.reserve(all.size());
  for (const MovedPiece& piece : all)
    out.push_back({piece.begin + (moved ? 0 : std::max(piece.by, 0)), piece.rows});
  return out;
}

MovedBack moved_back(Workspace& ws, const std::vector<MovedPiece>& pieces) {
  std::vector<int32_t> slots, refused(pieces.size() + 3, 9);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto slot = static_cast<int32_t>(pieces.size() + 2 - i);
    slots.push_back(pieces[i].by < 0 ? -1 : slot);
    if (pieces[i].by >= 0) refused[static_cast<size_t>(slot)] = pieces[i].by;
  }
  return {.slots = ws.ints(slots), .refused = ws.ints(refused)};
}

// Attention of rows that begin_step has moved back is that of rows that stood there. The host's
// lengths of contexts remain those before.
void expect_moved(Ops& ops, const Gqa& spec, DType act, const KvFormat& cache, int page_size) {
  SCOPED_TRACE(fmt::format("heads {}/{} dim {} window {} act {} cache {} page {}", spec.heads,
                           spec.kv_heads, spec.head_dim, spec.window, name(act), describe(cache),
                           page_size));
  Workspace ws(static_cast<uint64_t>(spec.head_dim + spec.window));
  Paged paged(ws, spec, cache, page_size, pieces_of(kMovedPieces, /*moved=*/false));
  const int64_t rows = paged.batch.num_tokens, cols = int64_t{spec.heads} * spec.head_dim;
  const Tensor q = ws.random(act, {rows, cols}, 1.5), out = ws.output(act, {rows, cols});
  // A first step makes the plans of such layers known, as in service.
  ops.begin_step(paged.batch, {});
  ops.gqa_attend(out, q, spec, paged.batch, paged.kv);
  ops.wait(ops.mark());
  RaggedBatch batch = paged.batch;
  const std::vector<int32_t> lengths(batch.host_kv_len.begin(), batch.host_kv_len.end());
  batch.host_kv_len = lengths;
  batch.moved_back = moved_back(ws, kMovedPieces);
  ws.begin_op({out, batch.positions, batch.kv_len});
  ops.begin_step(batch, {});
  ops.gqa_attend(out, q, spec, batch, paged.kv);
  ops.wait(ops.mark());
  ws.end_op();
  const std::vector<Piece> pieces = pieces_of(kMovedPieces, /*moved=*/true);
  int64_t r = 0;
  for (size_t s = 0; s < pieces.size(); ++s) {
    EXPECT_EQ(batch.kv_len.as<int32_t>()[s], pieces[s].begin + pieces[s].rows) << s;
    for (int i = 0; i < pieces[s].rows; ++i, ++r) {
      ASSERT_EQ(batch.positions.as<int32_t>()[r], pieces[s].begin + i) << s;
      for (int h = 0; h < spec.heads; ++h)
        expect_attention_at(out.row_range(r, 1), q.row_range(r, 1), spec, paged,
                            static_cast<int>(s), pieces[s].begin + i, h);
    }
  }
}

TEST_P(OpSuite, AttentionFollowsRowsThatMoveBack) {
  for (const int window : {0, 3, 64, 100}) {
    expect_moved(*ops, gqa(4, 2, 16, window), DType::kF32, {.dtype = DType::kF32}, 16);
    for (const int dim : {64, 128})
      expect_moved(*ops, gqa(8, 2, dim, window), DType::kBF16, {.dtype = DType::kBF16}, 64);
    expect_moved(*ops, gqa(16, 1, 128, window), DType::kBF16, {.dtype = DType::kBF16}, 16);
  }
  expect_moved(*ops, gqa(2, 1, 256), DType::kBF16, {.dtype = DType::kBF16}, 64);
}

TEST_P(OpSuite, AttentionOverQuantizedRowsFollowsRowsThatMoveBack) {
  for (const DType dtype : {DType::kI8, DType::kF8E4M3, DType::kU4})
    for (const int window : {0, 70})
      expect_moved(*ops, gqa(8, 2, 128, window), DType::kBF16, kv_format(dtype), 64);
}

// The same of latents: within what two orders of additions and the last rounding may differ by.
void expect_moved(Ops& ops, const Mla& spec, DType act, bool rows_of_8_bits) {
  Workspace ws(static_cast<uint64_t>(spec.heads));
  Paged paged(ws, cached(spec), act, 64, pieces_of(kMovedPieces, /*moved=*/false));
  const KvLayer layer = rows_of_8_bits ? make_rows(ws, paged, spec) : latents(paged);
  const int64_t vectors = int64_t{paged.batch.num_tokens} * spec.heads;
  const Tensor q = ws.random(act, {vectors, spec.nope_dim + spec.rope_dim});
  const Tensor q_latent = ws.random(act, {vectors, spec.kv_rank}),
               q_rope = q.col_range(spec.nope_dim, spec.rope_dim);
  const Tensor want = ws.output(act, {vectors, spec.kv_rank}),
               out = ws.output(act, {vectors, spec.kv_rank});
  std::vector<size_t> order(kMovedPieces.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const Stepped exact = paged.step(ws, order, pieces_of(kMovedPieces, /*moved=*/true));
  ops.begin_step(exact.batch, {});
  ops.mla_attend(want, q_latent, q_rope, spec, exact.batch, layer);
  ops.wait(ops.mark());
  RaggedBatch batch = paged.batch;
  const std::vector<int32_t> lengths(batch.host_kv_len.begin(), batch.host_kv_len.end());
  batch.host_kv_len = lengths;
  batch.moved_back = moved_back(ws, kMovedPieces);
  ws.begin_op({out, batch.positions, batch.kv_len});
  ops.begin_step(batch, {});
  ops.mla_attend(out, q_latent, q_rope, spec, batch, layer);
  ops.wait(ops.mark());
  ws.end_op();
  const double unit = act == DType::kBF16 ? 0x1p-8 : 0x1p-20;
  for (int64_t r = 0; r < vectors; ++r) {
    double most = 0;
    for (int64_t i = 0; i < out.cols(); ++i) most = std::max(most, std::abs(at(want, r, i)));
    for (int64_t i = 0; i < out.cols(); ++i)
      ASSERT_NEAR(at(out, r, i), at(want, r, i), 2 * unit * most) << "vector " << r << ", " << i;
  }
}

TEST_P(OpSuite, LatentAttentionFollowsRowsThatMoveBack) {
  expect_moved(*ops, mla(3, 20, 8), DType::kF32, false);
  for (const int heads : {16, 32, 128})
    for (const bool rows_of_8_bits : {false, true})
      expect_moved(*ops, deepseek(heads), DType::kBF16, rows_of_8_bits);
}

}  // namespace
}  // namespace skiff::suite
