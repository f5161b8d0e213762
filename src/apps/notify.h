// apps/notify.h -- what `skiff serve` tells whoever started it: systemd (Type=notify) or
// `skiff start`. The protocol is sd_notify(3)'s: datagrams of NAME=VALUE lines to the socket that
// $NOTIFY_SOCKET names.
#pragma once
#include <string>
#include <string_view>

#include "base/progress.h"

namespace skiff::apps {

// Sends to the socket of that name, abstract where it begins with '@'. Does nothing for an empty
// name, and never waits or fails.
void notify(const std::string& socket, std::string_view state);
// Returns $NOTIFY_SOCKET, or an empty text.
std::string notify_socket();
// Returns a Progress that calls `next` and then tells the percentage of what has been loaded as
// STATUS, when it changes.
Progress notifying(Progress next);

// The receiving end, at an abstract address of its own. Not thread-safe.
class NotifyListener {
 public:
  NotifyListener();  // throws LoadError
  ~NotifyListener();
  NotifyListener(const NotifyListener&) = delete;
  const std::string& name() const { return name_; }  // for $NOTIFY_SOCKET
  // Returns the next datagram, or an empty text if none comes in this time.
  std::string next(int milliseconds);

 private:
  int fd_;
  std::string name_;
};

// Returns the value of the datagram's line NAME=VALUE; empty if there is none.
std::string_view notified(std::string_view state, std::string_view name);

}  // namespace skiff::apps
