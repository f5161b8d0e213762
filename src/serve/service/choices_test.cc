// Several choices of one request with a constraint: each fails, or not, by itself.
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "serve/service/engine_testing.h"

namespace skiff::service {
namespace {

// An engine that does nothing by itself: the test draws the tokens.
class QuietEngine : public EnginePort {
 public:
  void submit(NewSequence sequence) override {
    const std::lock_guard lock(mutex_);
    seen_.push_back(std::move(sequence));
  }
  void cancel(SeqId) override {}
  engine::EngineStats stats() const override { return {}; }
  std::vector<NewSequence> seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  std::mutex mutex_;
  std::vector<NewSequence> seen_;
};

// The sequence has drawn `token`, and then ends.
Event drawn(const NewSequence& sequence, Token token) {
  const auto follower = sequence.params.constraint->follow();
  follower->accept(token);
  Event event;
  event.seq = sequence.id;
  event.tokens = {token, ByteTokenizer::kEos};
  event.finish = Finish::kStop;
  return event;
}

TEST(Choices, OneThatLeavesItsConstraintDoesNotFailTheOthers) {
  const auto events = std::make_shared<EventQueue>();
  QuietEngine engine;
  EngineService service(echo_config(), engine, events, std::make_shared<ByteTokenizer>(),
                        std::make_shared<PlainTemplate>());
  Request request;
  request.input = std::string("hi");
  request.n = 3;
  request.constraint = {.kind = grammar::ConstraintKind::kChoice, .text = R"(["y"])"};
  std::mutex mutex;
  std::vector<Finish> ends(3, Finish::kNone);
  service.start(*service.prepare(std::move(request)), [&](const Reply& reply) {
    const std::lock_guard lock(mutex);
    if (reply.finish != Finish::kNone) ends[static_cast<size_t>(reply.index)] = reply.finish;
  });
  const auto sequences = engine.seen();
  ASSERT_EQ(sequences.size(), 3u);
  events->push({drawn(sequences[0], 'y')});
  events->push({drawn(sequences[1], 'n')});  // not allowed
  events->push({drawn(sequences[2], 'y')});
  const auto all_ended = [&] {
    const std::lock_guard lock(mutex);
    return std::ranges::count(ends, Finish::kNone) == 0;
  };
  for (int i = 0; i < 500 && !all_ended(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  service.stop();
  EXPECT_EQ(ends, (std::vector{Finish::kStop, Finish::kExhausted, Finish::kStop}));
}

}  // namespace
}  // namespace skiff::service
