/* capi/skiff.h -- the C interface of libskiff.so: an engine within another process. Requests go in
 * and events come out as JSON text; docs/python.md lists the fields, examples/c has a program.
 *
 * Status. Functions that can fail return SKIFF_OK or another skiff_status, and skiff_last_error()
 * then says why. Nothing throws across this interface. Sizes are in bytes; no text needs a
 * terminating zero where its size is given. What a function gives as `char **` is UTF-8 with a
 * terminating zero, and belongs to the caller, who gives it back with skiff_release().
 *
 * Threads. Every function may be called from any thread, also at the same time for one engine or
 * queue, with one exception: an engine or a queue is not in use while it is freed. Functions that
 * wait hold no lock that another one needs, so skiff_stop() ends a skiff_wait() of another thread.
 *
 * Processes. An engine is freed, or at least stopped, before exit(). It lives in the process that
 * opened it. In a child of fork() every function
 * with an engine or a queue returns SKIFF_FORKED, and freeing them does nothing.
 *
 * Signals. The engine's threads block all signals, so the process's own threads get them. A signal
 * that a thread handles during skiff_wait() or skiff_ready() makes the call return
 * SKIFF_INTERRUPTED.
 *
 * Bounds. Options may have 1 MiB, a request 64 MiB; JSON may be nested 64 deep. How many requests
 * run at a time, and how many prompt tokens wait, the options max_concurrency and
 * max_waiting_tokens say. Events that nobody collects are merged: at most one for each sequence. */
#ifndef SKIFF_CAPI_H
#define SKIFF_CAPI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of this interface. It grows when a program that was compiled with an older header
 * would no longer run; new functions, options and fields of JSON do not change it. */
#define SKIFF_ABI 1

#define SKIFF_API __attribute__((visibility("default")))

typedef struct skiff_engine skiff_engine;
typedef struct skiff_queue skiff_queue;

enum skiff_status {
  SKIFF_OK = 0,
  SKIFF_INVALID = 1,     /* an option or a field of a request is wrong */
  SKIFF_NOT_FOUND = 2,   /* a file, a model or a required field is missing */
  SKIFF_UNSUPPORTED = 3, /* understood, but not something that Skiff does */
  SKIFF_BUSY = 4,        /* too much is under way: try again when an event has come */
  SKIFF_INTERNAL = 5,    /* a fault of Skiff or of the device */
  SKIFF_LOADING = 6,     /* the model is not loaded yet */
  SKIFF_CLOSED = 7,      /* the engine was stopped, or could not go on */
  SKIFF_FORKED = 8,      /* this process is a child of the one that opened the engine */
  SKIFF_INTERRUPTED = 9, /* a signal was handled; call again */
  SKIFF_FAILED = 10      /* start-up failed: a file, memory, a device */
};

/* SKIFF_ABI of the library. */
SKIFF_API int skiff_abi(void);
SKIFF_API const char* skiff_version(void);

/* Why the calling thread's last call failed: one line that names the field, the value and the way
 * out. Valid until the thread's next call; "" if none has failed. */
SKIFF_API const char* skiff_last_error(void);
/* The option or field that was wrong, or "". */
SKIFF_API const char* skiff_last_error_field(void);

SKIFF_API void skiff_release(char* text);

/* ---- Engines ---- */

/* Checks the options and begins to load in a thread of its own. Options are a JSON object: the
 * flags of `skiff serve` that concern the engine and its answers, with `_` or `-`:
 *   {"model": "models/demo", "max_num_seqs": 16, "enable_prefix_caching": false}
 * Values are checked as on the command line; null stands for the default, a list for a flag that is
 * repeated. Known flags that do not apply are ignored with a warning in the log, unknown ones are
 * SKIFF_INVALID. `*engine` is set only with SKIFF_OK. */
SKIFF_API int skiff_open(const char* options, size_t size, skiff_engine** engine);

/* Waits at most `timeout_ms` (-1: without end) until the model is loaded: SKIFF_OK, SKIFF_LOADING,
 * SKIFF_FAILED. `loaded`, which may be null, gets the part of the weights that is read, 0 to 1. */
SKIFF_API int skiff_ready(skiff_engine* engine, int timeout_ms, double* loaded);

/* The following four need a loaded engine, else SKIFF_LOADING. */

/* {"version","model","architecture","device","dtype","max_model_len","max_num_seqs","vocab_size",
 *  "block_size","num_blocks","eos_token_ids","chat","batch_invariant","defaults"} */
SKIFF_API int skiff_info(skiff_engine* engine, char** json);
/* Prometheus text format 0.0.4, as GET /metrics. */
SKIFF_API int skiff_metrics(skiff_engine* engine, char** text);
/* {"prompt": "..."} or {"messages": [...], ...} becomes {"tokens": [...]}, as generation would have
 * it. */
SKIFF_API int skiff_tokenize(skiff_engine* engine, const char* body, size_t size, char** json);
/* {"tokens": [...], "skip_special_tokens": true} becomes {"text": "..."}. */
SKIFF_API int skiff_detokenize(skiff_engine* engine, const char* body, size_t size, char** json);

/* Cancels all requests, ends all threads of the engine, and ends every wait with SKIFF_CLOSED. It
 * returns when the step under way is over, or, while the model loads, when the loading has noticed;
 * at once when the device is lost meanwhile. Where the device hangs and the step is not over within
 * 300 s, it is SKIFF_INTERNAL, and what the step uses stays; a later call says the same at once, or
 * SKIFF_OK if the step has ended since. Idempotent otherwise. */
SKIFF_API int skiff_stop(skiff_engine* engine);
/* Stops the engine and frees it. Queues of it stay valid, and closed. Null is ignored. */
SKIFF_API void skiff_engine_free(skiff_engine* engine);

/* ---- Requests ---- */

/* A queue holds the events of the requests that were submitted to it: one for each part of a
 * program that collects its own. The engine must be loaded. */
SKIFF_API int skiff_queue_open(skiff_engine* engine, skiff_queue** queue);
/* Cancels what is under way and frees the queue. Null is ignored. */
SKIFF_API void skiff_queue_free(skiff_queue* queue);
/* A descriptor (an eventfd) that is readable while skiff_wait() would return at once, for poll,
 * epoll or asyncio. It is not to be read, and lives as long as the queue. -1 after fork(). */
SKIFF_API int skiff_queue_fd(const skiff_queue* queue);

/* Checks, templates and tokenizes a request on the calling thread, then starts it. `kind`:
 *   "completion"  the body of POST /v1/completions with one prompt: text, or token ids
 *   "chat"        the body of POST /v1/chat/completions
 *   "embedding"   the body of POST /v1/embeddings with one input; the model is loaded with the
 *                 option runner "pooling"
 *   "classify"    the body of POST /v1/classify with one input, for a model with classes
 * With "stream": true each event has what is new since the one before, else there is one event for
 * each of n sequences, when it has ended. `*id` is positive and unique within the queue. */
SKIFF_API int skiff_submit(skiff_queue* queue, const char* kind, const char* body, size_t size,
                           uint64_t* id);

/* Waits at most `timeout_ms` (-1: without end; 0: not at all) for events and gives a JSON array of
 * them, "[]" if none came. Several waiting threads take turns. SKIFF_CLOSED once the engine has
 * stopped and no event is left. */
SKIFF_API int skiff_wait(skiff_queue* queue, int timeout_ms, char** events);

/* Ends a request at once. No skiff_wait() that begins later has an event of it. Unknown ids, and
 * those that have ended, are ignored. */
SKIFF_API int skiff_cancel(skiff_queue* queue, uint64_t id);

#ifdef __cplusplus
}
#endif

#endif
