#include "apps/thread_stacks.h"

#include <cxxabi.h>
#include <dirent.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>

namespace skiff::apps {
namespace {

constexpr int kMaxFrames = 64;
constexpr long kPatienceNanoseconds = 200'000'000;

// A signal handler can reach static storage only. One thread writes at a time: the one that is
// asked.
struct Page {
  sem_t written;
  std::atomic<int> asked{
      0};  // id of the thread that may answer; 0: none, so late answers are ignored
  void* frames[kMaxFrames];
  std::atomic<int> count{0};  // written after the frames, read before them
  Page() { sem_init(&written, 0, 0); }
};

Page& page() {
  static Page page;
  return page;
}

int stack_signal() { return SIGRTMIN + 3; }

int own_tid() { return static_cast<int>(syscall(SYS_gettid)); }

void write_down(int) {
  const int saved = errno;
  Page& p = page();
  int self = own_tid();
  // backtrace() allocates nothing once prepare_thread_stacks() has called it.
  if (p.asked.compare_exchange_strong(self, -self)) {
    p.count = backtrace(p.frames, kMaxFrames);
    sem_post(&p.written);
  }
  errno = saved;
}

std::string symbol(const char* text) {
  std::string line = text;  // program(mangled+0x12) [0x55...]
  const size_t open = line.find('('), plus = line.find('+', open);
  if (open == std::string::npos || plus == std::string::npos || plus == open + 1) return line;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(line.substr(open + 1, plus - open - 1).c_str(), nullptr, nullptr,
                          &status),
      std::free);
  return status == 0 ? fmt::format("{} {}", name.get(), line.substr(plus)) : line;
}

std::vector<std::string> symbols(void* const* frames, int count) {
  const std::unique_ptr<char*, void (*)(void*)> lines(backtrace_symbols(frames, count), std::free);
  std::vector<std::string> out;
  for (int i = 0; lines && i < count; ++i) out.push_back(symbol(lines.get()[i]));
  return out;
}

timespec soon() {
  timespec end{};
  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_nsec += kPatienceNanoseconds;
  end.tv_sec += end.tv_nsec / 1'000'000'000;
  end.tv_nsec %= 1'000'000'000;
  return end;
}

std::vector<std::string> frames_of(int tid) {
  Page& p = page();
  if (tid == own_tid()) return symbols(p.frames, backtrace(p.frames, kMaxFrames));
  p.asked = tid;
  if (syscall(SYS_tgkill, getpid(), tid, stack_signal()) != 0) return {};
  const timespec end = soon();
  int waited;
  while ((waited = sem_clockwait(&p.written, CLOCK_MONOTONIC, &end)) != 0 && errno == EINTR) {
  }
  // The caller waits for a thread that has begun to write, because the page is in use until it is
  // done.
  int asked = tid;
  if (waited != 0 && !p.asked.compare_exchange_strong(asked, 0)) {
    while (sem_wait(&p.written) != 0) {
    }
    waited = 0;
  }
  if (waited != 0) return {};
  return symbols(p.frames, p.count);
}

void describe(ThreadStack& thread) {
  const std::string folder = fmt::format("/proc/self/task/{}/", thread.tid);
  std::getline(std::ifstream(folder + "comm"), thread.name);
  std::string stat;
  std::getline(std::ifstream(folder + "stat"), stat);
  const size_t end = stat.rfind(')');
  if (end != std::string::npos && end + 2 < stat.size()) thread.state = stat[end + 2];
}

}  // namespace

void prepare_thread_stacks() {
  page();
  void* frames[2];
  backtrace(frames, 2);
  struct sigaction action = {};
  action.sa_handler = write_down;
  action.sa_flags = SA_RESTART;
  sigaction(stack_signal(), &action, nullptr);
}

std::vector<ThreadStack> thread_stacks() {
  prepare_thread_stacks();
  std::vector<ThreadStack> stacks;
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return stacks;
  while (const dirent* entry = readdir(folder))
    if (entry->d_name[0] != '.') stacks.push_back({.tid = std::atoi(entry->d_name)});
  closedir(folder);
  for (ThreadStack& thread : stacks) {
    describe(thread);
    thread.frames = frames_of(thread.tid);
  }
  return stacks;
}

std::string text_of(const std::vector<ThreadStack>& stacks) {
  std::string out;
  for (const ThreadStack& thread : stacks) {
    out += fmt::format("thread {} {} ({})\n", thread.tid, thread.name, thread.state);
    if (thread.frames.empty()) out += "    did not answer\n";
    for (const std::string& frame : thread.frames) out += fmt::format("    {}\n", frame);
  }
  return out;
}

}  // namespace skiff::apps
