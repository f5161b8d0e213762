#include "comm/nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "comm/call.h"
#include "comm/meeting.h"
#include "comm/sums.h"
#include "comm/tcp_link.h"

namespace skiff::comm {
namespace {

using Bytes = std::vector<std::byte>;

constexpr const char* kDismissed = "the group has ended in good order";

// What a rank shows to the others of its node.
struct Shown {
  Call call;
  Tensor tensor;
  int64_t number = 0;
};

// Appends the rows of x, one after the other.
void append(const Tensor& x, Bytes& to) {
  const size_t row = byte_size(x.dtype, x.cols()), stride = byte_size(x.dtype, x.row_stride);
  const auto* from = static_cast<const std::byte*>(x.data);
  for (size_t r = 0; r < static_cast<size_t>(x.rows()); ++r)
    to.insert(to.end(), from + r * stride, from + r * stride + row);
}

size_t bytes_of(const Call& call) { return byte_size(call.dtype, call.rows * call.cols); }

// Sums in float32, one rank after the other.
Bytes summed(const Call& call, std::span<const Tensor> by_rank) {
  Bytes result(static_cast<size_t>(call.rows * call.cols) * sizeof(float));
  const Tensor sums = host_tensor(result.data(), DType::kF32, {call.rows, call.cols});
  for (int64_t r = 0; r < call.rows; ++r)
    sum_row(by_rank, r, std::span(sums.row<float>(r), static_cast<size_t>(call.cols)));
  return result;
}

Bytes least_of(std::span<const Tensor> by_rank) {
  int64_t least = *by_rank.front().row<int64_t>(0);
  for (const Tensor& one : by_rank) least = std::min(least, *one.row<int64_t>(0));
  Bytes result(sizeof least);
  std::memcpy(result.data(), &least, sizeof least);
  return result;
}

Bytes joined(const Call& call, std::span<const Tensor> by_rank) {
  if (call.kind == Collective::kLeast) return least_of(by_rank);
  if (call.kind != Collective::kGather) return summed(call, by_rank);
  Bytes result;
  for (const Tensor& one : by_rank) append(one, result);
  return result;
}

}  // namespace

struct Nodes::Impl {
  explicit Impl(const NodeGroup& settings)
      : group(settings), meeting(settings.ranks), shown(static_cast<size_t>(settings.ranks)) {}

  int first_rank(int node) const { return node * group.ranks; }

  std::span<const std::byte> exchange(int local, Shown mine);
  void carry();
  Bytes received(TcpLink& link, const Call& call, size_t want, int from);
  std::vector<Tensor> shown_here();
  void end(const std::string& why, bool own);
  bool close();
  [[noreturn]] void leave() const;

  const NodeGroup group;
  Meeting meeting;
  std::vector<Shown> shown;  // by place on this node; an entry is written by its rank before a
                             // meeting
  Bytes result;              // what the last collective gave; written between two meetings
  mutable std::mutex mutex;
  std::mutex making;                            // held while links are made, or told of the end
  std::string why;                              // guarded by mutex
  bool over = false;                            // guarded by mutex
  bool ended = false;                           // guarded by mutex: over, and not in good order
  std::vector<std::unique_ptr<TcpLink>> links;  // node 0: to the others in order; else: to node 0
};

// Ranks show what they have, the first of the node brings the result, and all may read it until
// they show something again.
std::span<const std::byte> Nodes::Impl::exchange(int local, Shown mine) {
  shown[static_cast<size_t>(local)] = mine;
  meeting.arrive();
  for (int other = 1; other < group.ranks; ++other) {
    const Call& call = shown[static_cast<size_t>(other)].call;
    if (call == shown[0].call) continue;
    end(describe_apart(shown[0].call, call, first_rank(group.node) + other), /*own=*/true);
    leave();
  }
  if (local == 0) carry();
  meeting.arrive();
  return result;
}

std::vector<Tensor> Nodes::Impl::shown_here() {
  std::vector<Tensor> tensors;
  tensors.reserve(shown.size());
  for (Shown& one : shown)
    tensors.push_back(one.call.kind == Collective::kLeast
                          ? host_tensor(&one.number, DType::kI64, {1, 1})
                          : one.tensor);
  return tensors;
}

void Nodes::Impl::carry() {
  const Call call = shown[0].call;
  const size_t each = bytes_of(call), ours = each * static_cast<size_t>(group.ranks);
  std::vector<Tensor> by_rank = shown_here();
  if (group.node > 0) {
    Bytes own;
    own.reserve(ours);
    for (const Tensor& one : by_rank) append(one, own);
    links[0]->send(call, own);
    size_t want = static_cast<size_t>(call.rows * call.cols) * sizeof(float);
    if (call.kind == Collective::kGather) want = ours * static_cast<size_t>(group.nodes);
    if (call.kind == Collective::kLeast) want = each;
    result = received(*links[0], call, want, 0);
    return;
  }
  std::vector<Bytes> theirs;
  for (size_t i = 0; i < links.size(); ++i)
    theirs.push_back(received(*links[i], call, ours, first_rank(static_cast<int>(i) + 1)));
  for (Bytes& bytes : theirs)
    for (int rank = 0; rank < group.ranks; ++rank)
      by_rank.push_back(host_tensor(bytes.data() + static_cast<size_t>(rank) * each, call.dtype,
                                    {call.rows, call.cols}));
  result = joined(call, by_rank);
  for (const auto& link : links) link->send(call, result);
}

// `from` is the first rank of the node at the other end.
Bytes Nodes::Impl::received(TcpLink& link, const Call& call, size_t want, int from) {
  std::optional<DataFrame> frame = link.receive();
  if (!frame) {
    end(fmt::format("{} has left", link.peer()), /*own=*/true);
    leave();
  }
  if (frame->call == call && frame->bytes.size() == want) return std::move(frame->bytes);
  end(from == 0 ? describe_apart(frame->call, call, first_rank(group.node))
                : describe_apart(call, frame->call, from),
      /*own=*/true);
  leave();
}

// The first reason counts. Links are told outside the lock of `mutex`, because their threads take
// it. Who comes second waits until they have been told: it may go on to destroy them.
void Nodes::Impl::end(const std::string& reason, bool own) {
  meeting.end(reason);
  {
    std::lock_guard telling(making);
    {
      std::lock_guard lock(mutex);
      if (over) return;
      over = ended = true;
      why = reason;
    }
    for (const auto& link : links) link->end(reason);
  }
  if (!own && group.ended) group.ended(reason);
}

// Ends the group in good order: nobody is told, and ranks that still read the result of the last
// collective go on. Returns whether it had not ended before.
bool Nodes::Impl::close() {
  std::lock_guard lock(mutex);
  if (!over) why = kDismissed;
  return !std::exchange(over, true);
}

void Nodes::Impl::leave() const {
  std::lock_guard lock(mutex);
  throw GroupEnded(why);
}

class Nodes::Rank final : public Communicator {
 public:
  Rank(Impl& node, int local) : node_(node), local_(local) {}

  int rank() const override { return node_.first_rank(node_.group.node) + local_; }
  int size() const override { return node_.first_rank(node_.group.nodes); }

  void all_reduce(Tensor x, Ops& ops) override {
    ops.copy(x, sums_of(Collective::kReduce, x, ops));
  }
  void reduce_add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm,
                       ResidualUse /*use*/, Ops& ops) override {
    const Tensor sums = sums_of(Collective::kReduceAddNorm, delta, ops);
    for (int64_t r = 0; r < sums.rows(); ++r)
      for (int64_t c = 0; c < sums.cols(); ++c) residual.row<float>(r)[c] += sums.row<float>(r)[c];
    ops.add_norm(out, residual, {}, norm);
  }
  void all_gather(Tensor out, Tensor x, Ops& ops) override {
    SKIFF_CHECK_EQ(out.cols(), x.cols() * size());
    const Tensor all = exchanged(Collective::kGather, x, ops, x.dtype, x.rows() * size());
    for (int from = 0; from < size(); ++from)
      ops.copy(out.col_range(from * x.cols(), x.cols()), all.row_range(from * x.rows(), x.rows()));
  }
  int64_t least(int64_t mine) override {
    const Call call{.kind = Collective::kLeast, .dtype = DType::kI64, .rows = 1, .cols = 1};
    const auto bytes = node_.exchange(local_, {.call = call, .tensor = {}, .number = mine});
    std::memcpy(&mine, bytes.data(), sizeof mine);
    return mine;
  }
  void abort(const std::string& why) override { node_.end(why, /*own=*/true); }

 private:
  Tensor sums_of(Collective kind, const Tensor& x, Ops& ops) {
    return exchanged(kind, x, ops, DType::kF32, x.rows());
  }
  // Returns the result of a collective as a matrix with the columns of x.
  Tensor exchanged(Collective kind, const Tensor& x, Ops& ops, DType dtype, int64_t rows) {
    SKIFF_CHECK(ops.device() == Device{}, "nodes of {} are no group yet", ops.name());
    const auto bytes = node_.exchange(local_, {.call = call_of(kind, x), .tensor = x});
    return host_tensor(const_cast<std::byte*>(bytes.data()), dtype, {rows, x.cols()});
  }

  Impl& node_;
  const int local_;
};

Nodes::Nodes(const NodeGroup& group, const std::vector<NodeSocket>& sockets)
    : impl_(std::make_unique<Impl>(group)) {
  const size_t want = group.node == 0 ? static_cast<size_t>(group.nodes) - 1 : 1;
  SKIFF_CHECK_EQ(sockets.size(), want);
  const auto ended = [impl = impl_.get()](const std::string& why) {
    impl->end(why, /*own=*/false);
  };
  std::lock_guard lock(impl_->making);  // a link may end before the next one is there
  for (const auto& [fd, name] : sockets)
    impl_->links.push_back(std::make_unique<TcpLink>(fd, name, group.silence_seconds, ended));
}

Nodes::~Nodes() { impl_->end(fmt::format("node {} has ended", impl_->group.node), /*own=*/true); }

std::vector<Mesh> Nodes::make_meshes() {
  std::vector<Mesh> meshes;
  meshes.reserve(static_cast<size_t>(impl_->group.ranks));
  for (int local = 0; local < impl_->group.ranks; ++local)
    meshes.push_back({.tp = std::make_unique<Rank>(*impl_, local)});
  return meshes;
}

void Nodes::send(std::span<const std::byte> message) {
  for (const auto& link : impl_->links) link->send_message(message);
}

std::optional<std::vector<std::byte>> Nodes::receive() {
  auto message = impl_->links.front()->receive_message();
  if (!message) impl_->close();
  return message;
}

void Nodes::dismiss() {
  if (!impl_->close()) return;
  for (const auto& link : impl_->links) link->leave();
}

void Nodes::abort(const std::string& why) { impl_->end(why, /*own=*/true); }

std::string Nodes::reason() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->ended ? impl_->why : "";
}

}  // namespace skiff::comm
