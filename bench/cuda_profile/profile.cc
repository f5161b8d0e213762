// Reports where a program's time on a CUDA device goes: the time of each kernel, and the idle time
// before it. Needs no other profiler. Build it as a shared object and let the driver load it:
//
//   g++ -std=c++20 -O2 -fPIC -shared bench/cuda_profile/profile.cc -lcupti -o profile.so
//   CUDA_INJECTION64_PATH=$PWD/profile.so skiff bench latency ...
//
// Prints to stderr when the program ends. The report covers the last SKIFF_PROFILE_SECONDS (default
// 0.5) of the recorded time, so that loading and warming up stay out, and of several devices the
// first. With SKIFF_PROFILE_AROUND=NAME it also shows what ran just before one kernel of that name
// in the middle of them, and SKIFF_PROFILE_AFTER (default 14) kernels from it on.
#include <cupti.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Work {
  uint64_t start, end;  // nanoseconds
  std::string name;
};

struct Share {
  uint64_t count = 0, busy = 0;  // nanoseconds
  uint64_t idle_before = 0;      // time in which nothing ran until one of these began
};

std::mutex mutex;
std::vector<Work> works;  // guarded by mutex

void need(CUptiResult result, const char* doing) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = "";
  cuptiGetResultString(result, &text);
  std::fprintf(stderr, "profile: %s: %s\n", doing, text);
}

void give_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *size = size_t{8} << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *size));
  *max_records = 0;
}

void take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  CUpti_Activity* record = nullptr;
  std::lock_guard lock(mutex);
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto* k = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      if (k->deviceId != 0) continue;
      works.push_back({k->start, k->end, k->name});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* c = reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
      if (c->deviceId != 0) continue;
      works.push_back({c->start, c->end,
                       c->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "(copy to device)"
                       : c->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "(copy to host)"
                                                                        : "(copy)"});
    }
  }
  std::free(buffer);
}

// Returns the demangled name of a kernel, without its parameters.
std::string readable(const std::string& mangled) {
  size_t at = mangled.find("GLOBAL__N_");
  std::string name = mangled;
  if (at != std::string::npos) name = mangled.substr(at);
  return name.size() > 130 ? name.substr(0, 130) : name;
}

// Prints one kernel named `name`, with its neighbours.
void show_around(const char* name, size_t from) {
  const char* asked = std::getenv("SKIFF_PROFILE_AFTER");
  const size_t before = 8, ahead = asked ? static_cast<size_t>(std::atoi(asked)) : 14;
  std::vector<size_t> places;
  for (size_t i = from; i < works.size(); ++i)
    if (works[i].name.find(name) != std::string::npos) places.push_back(i);
  if (places.empty()) return;
  const size_t middle = places[places.size() / 2];
  const size_t begin = middle - std::min(middle, before),
               end = std::min(works.size(), middle + ahead);
  uint64_t until = works[begin].start;
  std::fprintf(stderr, "      at us      takes   idle before\n");
  for (size_t i = begin; i < end; ++i) {
    const Work& w = works[i];
    std::fprintf(stderr, "%11.2f %10.2f %10.2f  %s\n",
                 static_cast<double>(w.start - works[begin].start) * 1e-3,
                 static_cast<double>(w.end - w.start) * 1e-3,
                 w.start > until ? static_cast<double>(w.start - until) * 1e-3 : 0.0,
                 readable(w.name).c_str());
    until = std::max(until, w.end);
  }
}

void report() {
  need(cuptiActivityFlushAll(1), "flushing");
  std::lock_guard lock(mutex);
  if (works.empty()) return;
  std::ranges::sort(works, {}, &Work::start);
  const char* text = std::getenv("SKIFF_PROFILE_SECONDS");
  const auto span = static_cast<uint64_t>((text ? std::atof(text) : 0.5) * 1e9);
  uint64_t last = 0;
  for (const Work& w : works) last = std::max(last, w.end);
  const uint64_t begin = last > span ? last - span : 0;
  std::map<std::string, Share> by_name;
  const auto from =
      static_cast<size_t>(std::ranges::lower_bound(works, begin, {}, &Work::start) - works.begin());
  uint64_t first = 0, until = 0, idle = 0, gaps = 0, long_idle = 0;
  for (const Work& w : works) {
    if (w.start < begin) continue;
    if (first == 0) first = until = w.start;
    Share& share = by_name[readable(w.name)];
    ++share.count;
    share.busy += w.end - std::max(w.start, std::min(until, w.end));  // overlapped time counts once
    if (w.start > until) {
      idle += w.start - until;
      share.idle_before += w.start - until;
      ++gaps;
      if (w.start - until > 3000) long_idle += w.start - until;
    }
    until = std::max(until, w.end);
  }
  const double all = static_cast<double>(until - first);
  std::vector<std::pair<std::string, Share>> rows(by_name.begin(), by_name.end());
  std::ranges::sort(rows,
                    [](const auto& a, const auto& b) { return a.second.busy > b.second.busy; });
  std::fprintf(stderr,
               "profile: %.1f ms; nothing ran for %.2f ms of it (%.1f%%), in %llu gaps; %.2f ms in "
               "gaps above 3 us\n",
               all * 1e-6, static_cast<double>(idle) * 1e-6, 100 * static_cast<double>(idle) / all,
               static_cast<unsigned long long>(gaps), static_cast<double>(long_idle) * 1e-6);
  std::fprintf(stderr, "  share    count      each, busy  idle before\n");
  for (const auto& [name, share] : rows) {
    const double count = static_cast<double>(share.count) * 1e3;
    std::fprintf(stderr, "%6.2f%% %8llu x %9.2f us %9.2f us  %s\n",
                 100 * static_cast<double>(share.busy) / all,
                 static_cast<unsigned long long>(share.count),
                 static_cast<double>(share.busy) / count,
                 static_cast<double>(share.idle_before) / count, name.c_str());
  }
  if (const char* name = std::getenv("SKIFF_PROFILE_AROUND")) show_around(name, from);
}

}  // namespace

extern "C" int InitializeInjection() {
  need(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "registering");
  need(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "recording kernels");
  need(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY), "recording copies");
  std::atexit(report);
  return 1;
}
