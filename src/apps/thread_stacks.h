// apps/thread_stacks.h -- the stacks of all threads of this process, for the log of a process that
// hangs.
#pragma once
#include <string>
#include <vector>

namespace skiff::apps {

struct ThreadStack {
  int tid = 0;
  std::string name;                 // as pthread_setname_np() set it
  char state = '?';                 // R, S, D, T ... as in /proc
  std::vector<std::string> frames;  // innermost first; empty if the thread did not answer
};

// Call it once, early: it loads and allocates what thread_stacks() would otherwise have to.
void prepare_thread_stacks();

// Interrupts each thread with a real-time signal whose handler records the stack. A thread that
// does not answer within 200 ms, because it is stopped or in the kernel, has no frames. One caller
// at a time.
std::vector<ThreadStack> thread_stacks();

// Formats each thread as one paragraph.
std::string text_of(const std::vector<ThreadStack>& stacks);

}  // namespace skiff::apps
