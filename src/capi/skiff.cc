// The functions of capi/skiff.h: handles to objects, exceptions to statuses.
#include "capi/skiff.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "capi/engine.h"
#include "capi/queue.h"
#include "capi/submit.h"

// A handle remembers its process: a child of fork() has the memory, but none of the threads.
struct skiff_engine {
  std::shared_ptr<skiff::capi::Engine> engine;
  pid_t process = getpid();
};

struct skiff_queue {
  std::shared_ptr<skiff::capi::Queue> queue;
  pid_t process = getpid();
};

namespace skiff::capi {
namespace {

// The last failure is the thread's own, as errno is.
thread_local Outcome last_failure;

int keep(Outcome outcome) noexcept {
  const int status = outcome.status;
  if (status != SKIFF_OK) last_failure = std::move(outcome);
  return status;
}

// Calls `body`, which gives an Outcome; nothing it throws gets out.
template <class Body>
int guard(Body body) noexcept {
  try {
    return keep(body());
  } catch (const std::bad_alloc&) {
    last_failure.what.clear();  // a text for it might need memory
    last_failure.field.clear();
    return SKIFF_INTERNAL;
  } catch (const std::exception& e) {
    try {
      return keep({.status = SKIFF_INTERNAL, .what = e.what()});
    } catch (const std::exception&) {
      return SKIFF_INTERNAL;
    }
  }
}

Outcome null_argument(const char* name) {
  return {.status = SKIFF_INVALID, .what = std::string(name) + " is null", .field = name};
}

template <class Handle>
Outcome check_handle(const Handle* handle, const char* name) {
  if (!handle) return null_argument(name);
  if (handle->process != getpid())
    return {.status = SKIFF_FORKED,
            .what =
                "this process is a child of the one that opened the engine; open an engine "
                "here, or start processes by other means than fork()"};
  return {};
}

Outcome give(const std::string& text, char** out) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  *out = copy;
  return {};
}

// A text of the caller's, which may be null where it is empty.
std::string_view view(const char* text, size_t size) {
  return text ? std::string_view(text, size) : std::string_view();
}

// Gives what `make(loaded, &text)` writes about a loaded engine.
template <class Make>
int describe(skiff_engine* engine, char** out, Make make) {
  return guard([&]() -> Outcome {
    if (Outcome bad = check_handle(engine, "engine"); !bad.ok()) return bad;
    if (!out) return null_argument("the place for the text");
    std::shared_ptr<Loaded> loaded;
    if (Outcome state = engine->engine->loaded(&loaded); !state.ok()) return state;
    std::string text;
    if (Outcome refused = make(*loaded, &text); !refused.ok()) return refused;
    return give(text, out);
  });
}

}  // namespace
}  // namespace skiff::capi

using skiff::capi::check_handle;
using skiff::capi::guard;
using skiff::capi::Outcome;

int skiff_abi(void) { return SKIFF_ABI; }

const char* skiff_version(void) { return SKIFF_VERSION; }

const char* skiff_last_error(void) { return skiff::capi::last_failure.what.c_str(); }

const char* skiff_last_error_field(void) { return skiff::capi::last_failure.field.c_str(); }

void skiff_release(char* text) { std::free(text); }

int skiff_open(const char* options, size_t size, skiff_engine** engine) {
  return guard([&]() -> Outcome {
    if (!engine) return skiff::capi::null_argument("engine");
    auto handle = std::make_unique<skiff_engine>();
    Outcome opened = skiff::capi::Engine::open(skiff::capi::view(options, size), &handle->engine);
    if (opened.ok()) *engine = handle.release();
    return opened;
  });
}

int skiff_ready(skiff_engine* engine, int timeout_ms, double* loaded) {
  return guard([&]() -> Outcome {
    if (Outcome bad = check_handle(engine, "engine"); !bad.ok()) return bad;
    return engine->engine->ready(timeout_ms, loaded);
  });
}

int skiff_info(skiff_engine* engine, char** json) {
  return skiff::capi::describe(engine, json, [](skiff::capi::Loaded& loaded, std::string* text) {
    *text = skiff::capi::info_json(loaded);
    return Outcome();
  });
}

int skiff_metrics(skiff_engine* engine, char** text) {
  return skiff::capi::describe(engine, text, [](skiff::capi::Loaded& loaded, std::string* out) {
    *out = loaded.service().metrics();
    return Outcome();
  });
}

int skiff_tokenize(skiff_engine* engine, const char* body, size_t size, char** json) {
  return skiff::capi::describe(engine, json, [&](skiff::capi::Loaded& loaded, std::string* text) {
    return skiff::capi::tokenize(loaded, skiff::capi::view(body, size), text);
  });
}

int skiff_detokenize(skiff_engine* engine, const char* body, size_t size, char** json) {
  return skiff::capi::describe(engine, json, [&](skiff::capi::Loaded& loaded, std::string* text) {
    return skiff::capi::detokenize(loaded, skiff::capi::view(body, size), text);
  });
}

int skiff_stop(skiff_engine* engine) {
  return guard([&]() -> Outcome {
    if (Outcome bad = check_handle(engine, "engine"); !bad.ok()) return bad;
    return engine->engine->stop();
  });
}

// In a child of fork() the memory stays: its destructors would wait for threads that are not there.
void skiff_engine_free(skiff_engine* engine) {
  if (!engine || engine->process != getpid()) return;
  skiff_stop(engine);
  delete engine;
}

int skiff_queue_open(skiff_engine* engine, skiff_queue** queue) {
  return guard([&]() -> Outcome {
    if (Outcome bad = check_handle(engine, "engine"); !bad.ok()) return bad;
    if (!queue) return skiff::capi::null_argument("queue");
    auto handle = std::make_unique<skiff_queue>();
    Outcome opened = skiff::capi::Queue::open(engine->engine, &handle->queue);
    if (opened.ok()) *queue = handle.release();
    return opened;
  });
}

void skiff_queue_free(skiff_queue* queue) {
  if (!queue || queue->process != getpid()) return;
  guard([&]() -> Outcome {
    delete queue;
    return {};
  });
}

int skiff_queue_fd(const skiff_queue* queue) {
  return queue && queue->process == getpid() ? queue->queue->fd() : -1;
}

int skiff_submit(skiff_queue* queue, const char* kind, const char* body, size_t size,
                 uint64_t* id) {
  return guard([&]() -> Outcome {
    if (Outcome bad = check_handle(queue, "queue"); !bad.ok()) return bad;
    if (!kind || !id) return skiff::capi::null_argument(kind ? "id" : "kind");
    return queue->queue->submit(kind, skiff::capi::view(body, size), id);
  });
}

int skiff_wait(skiff_queue* queue, int timeout_ms, char** events) {
  return guard([&]() -> Outcome {
    if (Outcome bad = check_handle(queue, "queue"); !bad.ok()) return bad;
    if (!events) return skiff::capi::null_argument("events");
    std::string text;
    if (Outcome ended = queue->queue->wait(timeout_ms, &text); !ended.ok()) return ended;
    return skiff::capi::give(text, events);
  });
}

int skiff_cancel(skiff_queue* queue, uint64_t id) {
  return guard([&]() -> Outcome {
    if (Outcome bad = check_handle(queue, "queue"); !bad.ok()) return bad;
    queue->queue->cancel(id);
    return {};
  });
}
