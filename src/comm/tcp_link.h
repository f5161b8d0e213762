// comm/tcp_link.h -- one connection between two nodes: frames both ways, with a heartbeat, so that
// a peer that is gone or silent is noticed even while nothing is to be sent.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "comm/call.h"
#include "comm/frame.h"

namespace skiff::comm {

struct DataFrame {
  Call call;
  std::vector<std::byte> bytes;
};

// Owns a connected socket and two threads. All methods may be called from any thread.
class TcpLink {
 public:
  // Called from any thread, perhaps several times, when the peer is gone, has been silent, has sent
  // what is no frame, or has ended the group, with the reason.
  using Ended = std::function<void(const std::string& why)>;

  // `peer` is what reasons call the other side.
  TcpLink(int fd, std::string peer, double silence_seconds, Ended ended);
  TcpLink(const TcpLink&) = delete;
  ~TcpLink();

  const std::string& peer() const { return peer_; }

  // Both send bytes to the peer; they block while it does not read, and do nothing once the link
  // has ended. Numbers of collectives and messages have a queue each where they come.
  void send(const Call& call, std::span<const std::byte> bytes);
  void send_message(std::span<const std::byte> bytes);
  // Both return the next of its kind; nothing once the link has ended.
  std::optional<DataFrame> receive() { return data_.pop(); }
  std::optional<std::vector<std::byte>> receive_message() { return messages_.pop(); }
  // Tells the peer that the group has ended and why, and sends nothing more. Wakes those that
  // receive.
  void end(const std::string& why);
  // Tells the peer that this side leaves in good order, and sends nothing more: the peer still gets
  // what was sent before, and then nothing, and it is not told of an end.
  void leave();

 private:
  void write(const FrameHead& head, std::span<const std::byte> bytes);
  void close_with(FrameKind last, const std::string& text);
  void read();
  void beat();
  enum class Read : uint8_t { kFrame, kEnded, kLeft };
  Read read_frame(std::string& why);
  std::optional<std::string> read_bytes(uint64_t size, std::vector<std::byte>& to) const;
  std::optional<std::string> read_all(std::byte* to, size_t size) const;
  bool write_all(const FrameHead& head, std::span<const std::byte> bytes);

  const int fd_;
  const std::string peer_;
  const double silence_;
  const Ended ended_;
  Queue<DataFrame> data_;
  Queue<std::vector<std::byte>> messages_;
  std::mutex writing_;  // held while a frame is written
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false, peer_closed_ = false;  // guarded by mutex_
  std::thread reader_, heart_;
};

}  // namespace skiff::comm
