/* Generates text with libskiff.so: opens an engine, submits some prompts, prints what comes.
 *
 *   cc -std=c11 examples/c/generate.c -Isrc/capi -Lbuild/cpu -lskiff -Wl,-rpath,$PWD/build/cpu -o generate
 *   ./generate models/demo "The capital of France is" "Once upon a time"
 *
 * To stay short, it writes prompts into JSON without escaping and prints events as they are: a real
 * program has a library for JSON. */
#include <skiff.h>
#include <stdio.h>
#include <string.h>

enum { kMaxText = 4096 };

/* Prints why the last call failed. */
static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, skiff_last_error());
  return 1;
}

static skiff_engine *open_engine(const char *model) {
  char options[kMaxText];
  snprintf(options, sizeof(options), "{\"model\": \"%s\", \"log_level\": \"warning\"}", model);
  skiff_engine *engine = NULL;
  if (skiff_open(options, strlen(options), &engine) != SKIFF_OK) {
    fail("options");
    return NULL;
  }
  double loaded = 0;
  int status = SKIFF_LOADING;
  while (status == SKIFF_LOADING || status == SKIFF_INTERRUPTED)
    status = skiff_ready(engine, 1000, &loaded);
  if (status == SKIFF_OK) return engine;
  fail("loading");
  skiff_engine_free(engine);
  return NULL;
}

static int submit_prompt(skiff_queue *queue, const char *prompt) {
  char body[kMaxText];
  const int size = snprintf(body, sizeof(body),
                            "{\"prompt\": \"%s\", \"max_tokens\": 16, \"temperature\": 0}", prompt);
  if (size < 0 || (size_t)size >= sizeof(body)) {
    fprintf(stderr, "the prompt is too long\n");
    return 1;
  }
  uint64_t id = 0;
  if (skiff_submit(queue, "completion", body, (size_t)size, &id) != SKIFF_OK) return fail("prompt");
  printf("request %llu: %s\n", (unsigned long long)id, prompt);
  return 0;
}

/* Each of these requests has one event, which is the last. */
static int print_events(skiff_queue *queue, int open) {
  while (open > 0) {
    char *events = NULL;
    const int status = skiff_wait(queue, -1, &events);
    if (status == SKIFF_INTERRUPTED) continue;
    if (status != SKIFF_OK) return fail("waiting");
    printf("%s\n", events);
    for (const char *at = events; (at = strstr(at, "\"last\":true")) != NULL; ++at) --open;
    skiff_release(events);
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s MODEL PROMPT...\n", argv[0]);
    return 2;
  }
  if (skiff_abi() != SKIFF_ABI) {
    fprintf(stderr, "libskiff.so has another interface than skiff.h\n");
    return 1;
  }
  skiff_engine *engine = open_engine(argv[1]);
  if (!engine) return 1;
  skiff_queue *queue = NULL;
  int failed = skiff_queue_open(engine, &queue) == SKIFF_OK ? 0 : fail("queue");
  for (int i = 2; i < argc && !failed; ++i) failed = submit_prompt(queue, argv[i]);
  if (!failed) failed = print_events(queue, argc - 2);
  skiff_queue_free(queue);
  skiff_engine_free(engine);
  return failed;
}
