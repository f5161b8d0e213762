// text/answer/call_body.h -- the readers of what stands between the marks of a call, one for each
// of the notations that models use.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "text/answer/answer_format.h"
#include "text/answer/tool_types.h"

namespace skiff::answer {

// Takes what a body finds. For each call begin(), arguments() any number of times, end().
class CallSink {
 public:
  virtual ~CallSink() = default;
  // An empty id: the model gave none.
  virtual void begin(std::string_view name, std::string_view id) = 0;
  virtual void arguments(std::string_view text) = 0;
  virtual void end() = 0;
};

// Reads one call, or a list of them, from the first byte behind the opening mark. Not thread-safe.
class CallBody {
 public:
  // kDone: the byte was the last of the body. kBroken: the bytes since the last end() are no call;
  // the byte is one of them. After either nothing may be pushed.
  enum class Step { kMore, kDone, kBroken };
  virtual ~CallBody() = default;
  virtual Step push(char byte) = 0;
  // The model has ended its answer here. True: what came is a whole call, although its end is not
  // as it should be.
  virtual bool finish() { return false; }
};

// All of them borrow their arguments.
std::unique_ptr<CallBody> json_body(const CallFormat& format, const ToolTypes* types,
                                    CallSink& sink);
std::unique_ptr<CallBody> named_body(const CallFormat& format, CallSink& sink);
std::unique_ptr<CallBody> tagged_body(const CallFormat& format, const ToolTypes& types,
                                      CallSink& sink);
std::unique_ptr<CallBody> python_body(CallSink& sink);
std::unique_ptr<CallBody> make_body(const CallFormat& format, const ToolTypes& types,
                                    CallSink& sink);

}  // namespace skiff::answer
