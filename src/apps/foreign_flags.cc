#include "apps/foreign_flags.h"

namespace skiff::apps {
namespace {

struct Name {
  std::string_view there, here;
};

// SGLang's, llama.cpp's and vLLM's, as their servers' help prints them.
constexpr Name kNames[] = {
    {"model-path", "model"},
    {"m", "model"},
    {"context-length", "max-model-len"},
    {"ctx-size", "max-model-len"},
    {"c", "max-model-len"},
    {"max-seq-len", "max-model-len"},
    {"mem-fraction-static", "gpu-memory-utilization"},
    {"max-running-requests", "max-num-seqs"},
    {"parallel", "max-num-seqs"},
    {"np", "max-num-seqs"},
    {"chunked-prefill-size", "max-num-batched-tokens"},
    {"max-prefill-tokens", "max-num-batched-tokens"},
    {"tp-size", "tensor-parallel-size"},
    {"dp-size", "data-parallel-size"},
    {"ep-size", "enable-expert-parallel"},
    {"disable-radix-cache", "no-enable-prefix-caching"},
    {"enforce-eager", "no-use-cudagraph"},
    {"disable-cuda-graph", "no-use-cudagraph"},
    {"random-seed", "seed"},
    {"alias", "served-model-name"},
    {"a", "served-model-name"},
    {"n-gpu-layers", "device"},
    {"gpu-layers", "device"},
    {"ngl", "device"},
    {"n-predict", "max-tokens"},
    {"n", "max-tokens"},
    {"p", "prompt"},
    {"t", "threads"},
    {"temp", "temperature"},
    {"repeat-penalty", "repetition-penalty"},
    {"base-url", "url"},
};

}  // namespace

std::string_view flag_here(std::string_view name) {
  for (const Name& known : kNames)
    if (known.there == name) return known.here;
  return {};
}

}  // namespace skiff::apps
