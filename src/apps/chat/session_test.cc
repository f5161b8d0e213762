#include "apps/chat/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>

#include "serve/service/engine_testing.h"

namespace skiff::apps {
namespace {

using testing::HasSubstr;
using testing::Not;

class ScriptedLines : public LineSource {
 public:
  explicit ScriptedLines(std::deque<LineRead> lines) : lines_(std::move(lines)) {}
  LineRead read(std::string_view) override {
    if (lines_.empty()) return {LineEnd::kClosed, ""};
    LineRead line = std::move(lines_.front());
    lines_.pop_front();
    return line;
  }
  void remember(const std::string&) override {}

 private:
  std::deque<LineRead> lines_;
};

// Collects what is printed.
class Pages {
 public:
  Pages() : file_(open_memstream(&text_, &size_)) {}
  ~Pages() {
    std::fclose(file_);
    std::free(text_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  FILE* file_;
};

struct Told {
  int code = 0;
  std::string out, err;
  std::string messages;  // the conversation afterwards
};

constexpr Look kPerson{.interactive = true, .colour = false}, kPipe{};

// The echo engine repeats the rendered prompt, "user:hi;" for a first "hi".
class Session : public testing::Test {
 protected:
  Session() { echo_.engine.turn_microseconds = 20; }

  Told run_reads(Look look, std::deque<LineRead> lines) {
    ScriptedLines source(std::move(lines));
    Pages out, err;
    ChatScreen screen(look, out.file(), err.file());
    const std::vector<std::string> words = {"--temperature=0"};
    ChatSession session({echo_.service, signals_, source, history_, screen},
                        ChatSettings(Args(kChat, words), {}), "echo");
    Told told{.code = session.run()};
    told.out = out.text();
    told.err = err.text();
    told.messages = session.conversation().value().messages.dump();
    return told;
  }
  Told run(Look look, const std::vector<std::string>& lines) {
    std::deque<LineRead> read;
    for (const std::string& line : lines) read.push_back({LineEnd::kLine, line});
    return run_reads(look, std::move(read));
  }

  ChatSignals signals_{false};
  const HistoryFile history_{""};
  service::EchoService echo_;
};

TEST_F(Session, APipeGetsAnswersAndNothingElse) {
  const Told told = run(kPipe, {"hi", "/stats", "/nothing", ""});
  EXPECT_EQ(told.out, "user:hi;\n");
  EXPECT_THAT(told.err, HasSubstr("1 exchange, 2 messages"));
  EXPECT_THAT(told.err, HasSubstr("unknown command /nothing"));
  EXPECT_EQ(told.code, 0);
}

TEST_F(Session, TheConversationGoesOn) {
  const Told told = run(kPipe, {"hi", "so"});
  EXPECT_EQ(told.out, "user:hi;\nuser:hi;assistant:user:hi;;user:so;\n");
}

TEST_F(Session, APersonGetsFigures) {
  const Told told = run(kPerson, {"hi"});
  EXPECT_THAT(told.out, HasSubstr("user:hi;\n[9 tokens, first after "));
  EXPECT_THAT(told.out, HasSubstr("context 17/512]"));
  EXPECT_EQ(told.err, "");
}

TEST_F(Session, SystemResetUndoRegen) {
  EXPECT_EQ(run(kPipe, {"/system be", "hi"}).out, "system:be;user:hi;\n");
  EXPECT_EQ(run(kPipe, {"hi", "/reset", "so"}).out, "user:hi;\nuser:so;\n");
  EXPECT_EQ(run(kPipe, {"hi", "/undo", "so"}).out, "user:hi;\nuser:so;\n");
  EXPECT_EQ(run(kPipe, {"hi", "/regen"}).out, "user:hi;\nuser:hi;\n");
  EXPECT_EQ(run(kPipe, {"hi", "/regen"}).messages, run(kPipe, {"hi"}).messages);
  EXPECT_THAT(run(kPipe, {"/regen"}).err, HasSubstr("no question"));
}

TEST_F(Session, TwoSlashesSayOne) {
  EXPECT_EQ(run(kPipe, {"//help"}).out, "user:/help;\n");
  EXPECT_EQ(run(kPipe, {"\"\"\"", "/help", "\"\"\""}).out, "user:/help;\n");
}

TEST_F(Session, SettingsReachTheEngine) {
  const Told told = run(kPipe, {"/set max_tokens 4", "hi", "/set top_p 7", "/set top_p=0.5", "so"});
  EXPECT_THAT(told.out, testing::StartsWith("user\n"));
  EXPECT_THAT(told.err, HasSubstr("wants a number in [0, 1]"));
  EXPECT_FLOAT_EQ(echo_.engine.seen().back().params.top_p, 0.5f);
}

TEST_F(Session, TheOldestExchangeMakesRoom) {
  const std::string long_text(150, 'x');
  const Told told = run(kPerson, {"hi", long_text, "so"});
  EXPECT_THAT(told.out, HasSubstr("the oldest exchange is forgotten"));
  EXPECT_THAT(told.messages, Not(HasSubstr("\"hi\"")));
  EXPECT_THAT(told.messages, HasSubstr("\"so\""));
}

TEST_F(Session, AMessageThatNeverFitsIsRefusedAndForgotten) {
  const Told told = run(kPipe, {"hi", std::string(600, 'x')});
  EXPECT_THAT(told.err, HasSubstr("maximum context length is 512 tokens"));
  EXPECT_EQ(told.code, 1);
  // The earlier messages are restored, also those that had been dropped to make room.
  EXPECT_EQ(told.messages, run(kPipe, {"hi"}).messages);
}

TEST_F(Session, ARefusalOfTheEngineIsTold) {
  echo_.engine.refuse_ = true;
  const Told told = run(kPipe, {"hi"});
  EXPECT_THAT(told.err, HasSubstr("no room"));
  EXPECT_EQ(told.messages, "[]");
  EXPECT_EQ(told.code, 1);
}

TEST_F(Session, CtrlCStopsTheAnswerAndKeepsWhatWasSaid) {
  echo_.engine.turn_microseconds = 3000;
  std::thread person([this] {
    while (echo_.engine.running() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    kill(getpid(), SIGINT);
  });
  const Told told = run(kPerson, {std::string(100, 'x'), "/stats"});
  person.join();
  EXPECT_THAT(told.out, HasSubstr("[stopped; "));
  EXPECT_THAT(told.out, HasSubstr("1 exchange, 2 messages"));
  EXPECT_THAT(told.messages, HasSubstr("\"assistant\",\"content\":\"u"));
  EXPECT_EQ(echo_.engine.running(), 0);
}

TEST_F(Session, CtrlCBeforeAnythingIsSaidForgetsTheQuestion) {
  echo_.engine.hold = true;
  std::thread person([this] {
    while (echo_.engine.running() == 0) std::this_thread::yield();
    kill(getpid(), SIGINT);
  });
  const Told told = run(kPerson, {"hi"});
  person.join();
  EXPECT_EQ(told.messages, "[]");
}

TEST_F(Session, SigtermDuringAnAnswerLeaves) {
  echo_.engine.hold = true;
  std::thread person([this] {
    while (echo_.engine.running() == 0) std::this_thread::yield();
    kill(getpid(), SIGTERM);
  });
  const Told told = run(kPipe, {"hi", "so"});
  person.join();
  EXPECT_EQ(told.code, 0);
  EXPECT_EQ(echo_.engine.seen().size(), 1u);
}

TEST_F(Session, TwoCtrlCAtThePromptLeave) {
  const LineRead interrupt{LineEnd::kInterrupt, ""}, hi{LineEnd::kLine, "hi"};
  EXPECT_EQ(run_reads(kPerson, {interrupt, interrupt, hi}).messages, "[]");
  EXPECT_THAT(run_reads(kPerson, {interrupt, hi, interrupt}).messages, HasSubstr("hi"));
  const Told begun = run_reads(kPerson, {{LineEnd::kLine, "one\\"}, interrupt, hi});
  EXPECT_THAT(begun.messages, Not(HasSubstr("one")));
  EXPECT_EQ(run_reads(kPipe, {interrupt, hi}).code, 130);
}

TEST_F(Session, SavedConversationsComeBack) {
  const std::string path = testing::TempDir() + "skiff_session_test.json";
  std::filesystem::remove(path);
  const Told saved = run(kPipe, {"hi", "/save " + path, "/save " + path});
  EXPECT_THAT(saved.err, Not(HasSubstr("exists")));  // it is this session's own file
  EXPECT_THAT(run(kPipe, {"/save " + path}).err, HasSubstr("exists"));
  EXPECT_EQ(run(kPipe, {"/load " + path}).messages, saved.messages);
  EXPECT_THAT(run(kPipe, {"/load " + path + "x"}).err, HasSubstr("cannot be read"));
  std::ofstream(path) << R"({"messages": [{"role": "user", "content": "so"}]})";
  EXPECT_EQ(run(kPipe, {"/load " + path, "/regen"}).out, "user:so;\n");
  std::ofstream(path) << R"({"messages": [{}]})";
  EXPECT_THAT(run(kPipe, {"/load " + path}).err, HasSubstr("message 1 has no \"role\""));
  std::filesystem::remove(path);
}

TEST(PlainLines, AreCutAtNewlines) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string bytes = "one\n\ntwo";
  ASSERT_EQ(write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  close(ends[1]);
  ChatSignals signals(false);
  PlainLines lines(ends[0], signals);
  for (const char* expected : {"one", "", "two"}) {
    const LineRead line = lines.read("");
    EXPECT_EQ(line.end, LineEnd::kLine);
    EXPECT_EQ(line.text, expected);
  }
  EXPECT_EQ(lines.read("").end, LineEnd::kClosed);
  close(ends[0]);
}

TEST(PlainLines, ASignalEndsTheWait) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ChatSignals signals(false);
  PlainLines lines(ends[0], signals);
  kill(getpid(), SIGINT);
  EXPECT_EQ(lines.read("").end, LineEnd::kInterrupt);
  kill(getpid(), SIGTERM);
  EXPECT_EQ(lines.read("").end, LineEnd::kLeave);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace skiff::apps
