// apps/thread_stacks.h -- where every thread of this process is, for the log of one that hangs.
#pragma once
#include <string>
#include <vector>

namespace skiff {

struct ThreadStack {
  int tid = 0;
  std::string name;                 // as pthread_setname_np() set it
  char state = '?';                 // R, S, D, T ... as in /proc
  std::vector<std::string> frames;  // innermost first; empty if the thread did not answer
};

// To be called once, early: what the other one would otherwise have to load and allocate.
void prepare_thread_stacks();

// Interrupts each thread for a moment by a real-time signal, in whose handler it writes its stack
// down; a thread that does not answer within 200 ms (it is stopped, or in the kernel) is left out.
// One caller at a time.
std::vector<ThreadStack> thread_stacks();

// One thread a paragraph.
std::string text_of(const std::vector<ThreadStack>& stacks);

}  // namespace skiff
