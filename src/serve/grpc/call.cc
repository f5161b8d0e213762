#include "serve/grpc/call.h"

#include "base/log.h"

namespace skiff::grpc {
namespace {

std::string text_of(const ::grpc::ByteBuffer& buffer) {
  std::string text;
  std::vector<::grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return text;
  text.reserve(buffer.Length());
  for (const ::grpc::Slice& slice : slices)
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return text;
}

::grpc::Status status_of(StatusCode code, const std::string& why) {
  return {static_cast<::grpc::StatusCode>(code), why};
}

// The metadata that identify a client, as headers.
http::HttpHeaders headers_of(const ::grpc::GenericCallbackServerContext& context) {
  http::HttpHeaders headers;
  for (const auto& [name, value] : context.client_metadata())
    if (name == "authorization" || name == "x-api-key")
      headers.emplace_back(std::string(name.data(), name.size()),
                           std::string(value.data(), value.size()));
  return headers;
}

constexpr const char* kWrongKey =
    "this server wants an API key, as metadata `authorization: Bearer KEY` or `x-api-key: KEY`";

}  // namespace

void Call::open(const ::grpc::GenericCallbackServerContext& context) {
  self_ = shared_from_this();
  began_ = std::chrono::steady_clock::now();
  record_.method = "gRPC";
  record_.target = context.method();
  record_.client = context.peer();
  record_.request_id = "-";
  method_ = find_method(context.method());
  if (!method_)
    return finish(StatusCode::kUnimplemented,
                  fmt::format("there is no method {}", escaped(context.method())));
  head_.headers = headers_of(context);
  Shared& shared = core_.shared;
  if (method_->access == http::Access::kKey && shared.backend.keys.refuse(head_))
    return finish(StatusCode::kUnauthenticated, kWrongKey);
  handler_ = method_->make(shared, *this);
  StartRead(&incoming_);
}

void Call::OnReadDone(bool good) {
  if (!good)
    return core_.work.push([self = shared_from_this()] {
      self->handler_->half_closed();
      // A call of one message that brought none.
      if (!self->method_->streams)
        self->finish(StatusCode::kInvalidArgument, "the request has no message");
    });
  const auto size = static_cast<int64_t>(incoming_.Length());
  if (core_.message_bytes.fetch_add(size) + size > core_.config.max_memory) {
    core_.message_bytes -= size;
    return abandon(StatusCode::kResourceExhausted,
                   "the requests under way fill the server's memory for them; try again later");
  }
  const bool large = size >= static_cast<int64_t>(core_.config.large_message);
  (large ? core_.large : core_.work).push([self = shared_from_this(), size] {
    std::string message = text_of(self->incoming_);
    self->incoming_.Clear();
    self->handle(std::move(message));
    self->core_.message_bytes -= size;
  });
}

void Call::handle(std::string message) {
  try {
    handler_->message(std::move(message));
  } catch (const std::exception& e) {
    spdlog::error("{}: {}", method_->path, escaped(e.what()));
    return abandon(StatusCode::kInternal, "internal error");
  }
  if (method_->streams) read_next();
}

void Call::read_next() {
  std::lock_guard lock(mutex_);
  if (!ending_) StartRead(&incoming_);
}

bool Call::send(std::string message) {
  std::unique_lock lock(mutex_);
  if (ending_) return false;
  if (unsent_bytes_ + message.size() > core_.config.max_unsent && unsent_bytes_ > 0) {
    unsent_.clear();
    end(StatusCode::kResourceExhausted,
        "the client reads too slowly: too many bytes wait for it on the server");
    lock.unlock();
    // The caller may hold what the handler is about to cancel.
    core_.work.push([self = shared_from_this()] { self->abandon(StatusCode::kCancelled, {}); });
    return false;
  }
  unsent_bytes_ += message.size();
  unsent_.push_back(std::move(message));
  pump();
  return true;
}

void Call::finish(StatusCode code, std::string why) {
  std::lock_guard lock(mutex_);
  end(code, std::move(why));
}

void Call::end(StatusCode code, std::string why) {
  if (std::exchange(ending_, true)) return;
  status_ = status_of(code, why);
  pump();
}

// The library takes one message at a time, and the status last.
void Call::pump() {
  if (writing_ || finished_) return;
  if (!unsent_.empty()) {
    const ::grpc::Slice slice(unsent_.front());
    writing_bytes_ = unsent_.front().size();
    outgoing_ = ::grpc::ByteBuffer(&slice, 1);
    unsent_.pop_front();
    writing_ = true;
    StartWrite(&outgoing_);
  } else if (ending_) {
    finished_ = true;
    Finish(status_);
  }
}

void Call::OnWriteDone(bool good) {
  {
    std::lock_guard lock(mutex_);
    writing_ = false;
    unsent_bytes_ -= writing_bytes_;
    if (good) sent_bytes_ += writing_bytes_;
    if (good) return pump();
  }
  abandon(StatusCode::kCancelled, "the client has left");
}

void Call::OnCancel() { abandon(StatusCode::kCancelled, "the client has left"); }

// Ends the call without what has not been sent, and its work.
void Call::abandon(StatusCode code, std::string why) {
  bool tell;
  {
    std::lock_guard lock(mutex_);
    unsent_.clear();
    end(code, std::move(why));
    pump();
    tell = handler_ && !std::exchange(left_, true);
  }
  if (tell) handler_->cancelled();
}

void Call::OnDone() {
  const std::shared_ptr<Call> last = std::move(self_);
  if (!core_.shared.backend.record) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began_;
  record_.seconds = took.count();
  {
    std::lock_guard lock(mutex_);
    record_.status = static_cast<int>(status_.error_code());
    record_.sent = sent_bytes_;
    record_.complete = !left_;
  }
  core_.shared.backend.record(record_);
}

}  // namespace skiff::grpc
