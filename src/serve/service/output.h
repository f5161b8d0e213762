// serve/service/output.h -- the output thread: it makes replies of the engine's events, and ends
// requests whose time is up or that somebody ends. Private to EngineService.
#pragma once
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "serve/service/aborts.h"
#include "serve/service/open_request.h"
#include "serve/service/reply_builder.h"
#include "serve/service/request_table.h"
#include "serve/service/service_core.h"

namespace skiff::service {

// The sink of a request in the table is called by this thread alone, so that no piece of a reply
// comes after its end.
class Output {
 public:
  explicit Output(ServiceCore& core) : core_(core), replies_(core.engine) {}

  void start();
  // Closes the event queue and ends the thread. Requests must have been cancelled before.
  void stop();

  // From any thread.
  void cancel(RequestId id);
  // Waits until the requests have been ended.
  std::vector<Aborted> abort(AbortWish wish);

 private:
  using SequenceRef = RequestTable::SequenceRef;

  void run();
  void handle(Event& event);
  void send_reply(const SequenceRef& sequence, Event& event);
  void resume(const SequenceRef& sequence);
  void fail(const SequenceRef& sequence);
  static void flush_text(OpenRequest& request, const std::vector<size_t>& running);
  void end_expired();
  void end_aborted();
  void end_early(const RequestTable::Removed& removed, const Reply& end);
  void report_left();

  ServiceCore& core_;
  ReplyBuilder replies_;
  AbortQueue aborts_;
  std::mutex left_mutex_;
  std::vector<std::shared_ptr<OpenRequest>> left_;  // cancelled ones; guarded by left_mutex_
  std::thread thread_;
};

}  // namespace skiff::service
