#include "ops/cuda/stream.h"

#include <utility>

#include "base/check.h"
#include "ops/cuda/check.h"

namespace skiff::cuda {

Stream::Stream(int device) {
  check(cudaSetDevice(device), "choosing a device");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  for (cudaEvent_t& event : events_)
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  for (cudaEvent_t& event : stamp_events_)
    check(cudaEventCreate(&event), "making an event with a time stamp");
}

Stream::~Stream() {
  cudaStreamSynchronize(stream_);
  for (const auto& [key, recording] : recordings_) {
    if (recording.graph != nullptr) cudaGraphExecDestroy(recording.graph);
    if (recording.form != nullptr) cudaGraphDestroy(recording.form);
  }
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
  for (cudaEvent_t event : stamp_events_) cudaEventDestroy(event);
  cudaStreamDestroy(stream_);
}

uint64_t Stream::mark() {
  ++marks_;
  check(cudaEventRecord(events_[marks_ % kEvents], stream_), "marking a place in the stream");
  return marks_;
}

void Stream::wait(uint64_t mark) {
  if (mark <= done_) return;
  check(cudaEventSynchronize(events_[mark % kEvents]), "waiting for the device");
  done_ = mark;
}

uint64_t Stream::stamp(cudaStream_t at) {
  ++stamps_;
  check(cudaEventRecord(stamp_events_[stamps_ % kStamps], at), "noting the device's time");
  return stamps_;
}

double Stream::seconds_between(uint64_t from, uint64_t to) const {
  SKIFF_CHECK(from <= to && to <= stamps_ && stamps_ - from < kStamps, "stamps {} and {} of {}",
              from, to, stamps_);
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, stamp_events_[from % kStamps],
                             stamp_events_[to % kStamps]),
        "reading the device's time");
  return static_cast<double>(milliseconds) / 1000;
}

void Stream::replay(const ReplayKey& key, const std::function<void()>& work, const StepEnds& ends) {
  Recording& recording = recordings_[key];
  if (recording.graph == nullptr && !recording.warm) {
    recording.warm = true;
    return run(work, ends);
  }
  if (recording.graph == nullptr)
    record(recording, work, ends);
  else if (!adopts(recording, ends))
    return run(work, ends);
  check(cudaGraphLaunch(recording.graph, stream_), "replaying a step");
}

void Stream::run(const std::function<void()>& work, const StepEnds& ends) {
  Starts starts(stream_);
  ends.before(starts);
  work();
  ends.behind(starts);
}

bool Stream::adopts(const Recording& recording, const StepEnds& ends) {
  Starts starts(recording.graph, recording.places);
  ends.before(starts);
  ends.behind(starts);
  return starts.complete();
}

void Stream::record(Recording& recording, const std::function<void()>& work, const StepEnds& ends) {
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording a step");
  Starts starts(stream_, recording.places);
  ends.before(starts);
  work();
  ends.behind(starts);
  check(cudaStreamEndCapture(stream_, &recording.form), "recording a step");
  check(cudaGraphInstantiate(&recording.graph, recording.form, 0), "preparing a recorded step");
  if (!recording.places.empty()) return;
  check(cudaGraphDestroy(std::exchange(recording.form, nullptr)),
        "forgetting the form of a recorded step");
}

}  // namespace skiff::cuda
