// The flags of every command: names, defaults and meanings of FastDeploy 2.x where it has them.
// tools/make_parameters.sh turns this table into docs/parameters.md.
#include <limits>

#include "apps/args.h"

namespace skiff {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kMaxCount = 1 << 30;
using enum Kind;

// One flag a line, however long.
// clang-format off

constexpr Flag kModel[] = {
    {"model", kText, kSizes | kTokenize, "", "Model folder, in Hugging Face or Paddle layout (or give it without a flag)."},
    {"model-config-name", kText, kSizes, "config.json", "Name of the configuration file in the folder."},
    {"tokenizer", kText, kTexts, "", "Folder of the tokenizer; default: the model folder."},
    {"served-model-name", kText, kServe | kBench, "", "Name that clients use; may be repeated. Default: the folder's name. \"default\" always works.", 0, 0, "", "", Standing::kApplied, true},
    {"dtype", kChoice, kSizes, "auto", "Arithmetic and weights in memory. auto: bfloat16 for a bfloat16 or float16 checkpoint, else float32.", 0, 0, "auto|float32|bfloat16"},
    {"device", kText, kSizes, "auto", "auto (a CUDA device where there is one, else the CPU), cpu, cuda, cuda:N, or the slow and obvious reference."},
    {"load-format", kChoice, kRuns, "auto", "dummy: random weights of the right shapes from config.json alone, for benchmarks.", 0, 0, "auto|dummy"},
    {"use-cudagraph", kSwitch, kSizes, "true", "Record decode steps as CUDA graphs and replay them."},
    {"graph-optimization-config", kText, kSizes, "", "The same as JSON: use_cudagraph, and cudagraph_capture_sizes, the batch sizes to record; graph_opt_level means nothing here."},
    {"fuse-single-row", kSwitch, kSizes, "true", "CUDA: with one sequence running, fuse what lies between two attentions into one kernel. Its blocks wait for each other, so turn it off where other processes' kernels run beside it; under CUDA MPS it is off by itself. Models with experts never use it."},
    {"threads", kInt, kRuns, "0", "Threads of the CPU backend; 0: one per core that this process may use.", 0, 4096},
    {"chat-template", kText, kTexts, "", "A template, or a file with one, in place of the model's own."},
    {"seed", kInt, kRuns, "0", "Seed of draws that name none (serve: 0 means a new one each start; chat: a new one each answer unless given) and of dummy weights.", 0, 9.2e18},
};

constexpr Flag kMemory[] = {
    {"max-model-len", kInt, kSizes, "0", "Longest prompt and output together, in tokens; 0: what the model supports, at most 32768.", 0, kMaxCount},
    {"max-num-seqs", kInt, kSizes, "8", "Sequences in one step; chat: 1 unless given.", 1, 65536},
    {"max-num-batched-tokens", kInt, kSizes, "0", "Rows in one step; long prompts are cut to fit. 0: up to 8192.", 0, kMaxCount},
    {"max-num-partial-prefills", kInt, kRuns, "0", "Prompts that may be partly computed at a time; 0: any number.", 0, kMaxCount},
    {"max-long-partial-prefills", kInt, kRuns, "1", "Long prompts of them; 0: any number. Short prompts go before long ones, within bounds.", 0, kMaxCount},
    {"long-prefill-token-threshold", kInt, kRuns, "0", "Tokens above which a prompt is long; 0: 4 % of the context, at least 512.", 0, kMaxCount},
    {"block-size", kInt, kSizes, "64", "Tokens in one KV block.", 1, 4096},
    {"gpu-memory-utilization", kFloat, kSizes, "0.9", "Part of the memory that may be used: of a GPU all it has, of the host what is available.", 0.01, 1, "", "memory-utilization"},
    {"num-gpu-blocks-override", kInt, kSizes, "0", "Exactly so many KV blocks; 0: from the memory plan.", 0, kMaxCount},
    {"enable-prefix-caching", kSwitch, kSizes, "true", "Reuse the KV of prompts that begin alike."},
    {"swap-space", kFloat, kSizes, "0", "Host memory for cached blocks that the pool has no room for, in GB (2^30 bytes); 0: none.", 0, 1 << 20},
    {"kvcache-storage-backend", kText, kSizes, "", "file: cached blocks are also kept in --kvcache-storage-path, and found again after a restart. Of FastDeploy's others, mooncake and attention_store, there is none."},
    {"kvcache-storage-path", kText, kSizes, "", "The folder for them: one of its own for each server; made if it is not there."},
    {"kvcache-storage-size", kFloat, kSizes, "10", "Largest size of the file in it, in GB.", 0, 1 << 20},
    {"write-policy", kChoice, kSizes, "write_through", "When blocks go to that file: as soon as they are full.", 0, 0, "write_through"},
    {"static-decode-blocks", kInt, kSizes, "0", "Blocks that stay free for each running sequence when a request is let in. FastDeploy's older scheduler sets them aside.", 0, 1 << 24},
    {"kv-cache-ratio", kFloat, kSizes, "", "Accepted with a warning: there is one pool of blocks, not two.", 0, 1},
    {"enable-chunked-prefill", kSwitch, kSizes, "true", "Cut long prompts so that others keep running."},
    {"enable-overlap-schedule", kSwitch, kSizes, "true", "Plan the next step while this one computes."},
};

constexpr Flag kServer[] = {
    {"host", kText, kServe, "0.0.0.0", "Address to listen on."},
    {"port", kInt, kServe, "8000", "Port to listen on; 0: any free one.", 0, 65535},
    {"metrics-port", kInt, kServe, "", "Metrics are on the main port; the same number is accepted.", 0, 65535},
    {"workers", kInt, kServe, "2", "Threads that parse requests and tokenize.", 1, 1024},
    {"max-concurrency", kInt, kServe, "512", "Requests at a time; more are answered 429.", 1, 1e6},
    {"scheduling-policy", kChoice, kServe, "fcfs", "fcfs: requests are served as they arrive, and a priority other than 0 is refused. priority: the field priority of a request counts, lower first; give it only where clients may be trusted with it.", 0, 0, "fcfs|priority"},
    {"priority-ageing", kInt, kServe, "1000", "With --scheduling-policy priority: later requests that may go before one, for each unit of priority between them. 0: priority means nothing.", 0, 1e9},
    {"max-waiting-tokens", kInt, kServe, "1000000", "Prompt tokens that may wait for a place in the batch; requests beyond are answered 429. One that finds nothing waiting always may wait. 0: any number.", 0, 1e12},
    {"max-waiting-time", kInt, kServe, "-1", "Seconds that a request may wait for its place; then it is answered 429. -1: for ever.", -1, 604800},
    {"request-timeout", kFloat, kServe, "0", "Seconds that a request may take from end to end; then it is answered 504. A request's field timeout may ask for less. 0: any number.", 0, 604800},
    {"watchdog-timeout", kFloat, kServe, "300", "Seconds without a step, while requests wait, after which the process logs all stacks and ends with code 4. Above the longest step. 0: never.", 0, 604800},
    {"max-logprobs", kInt, kServe, "20", "Most log-probabilities per position; -1: the whole vocabulary.", -1, kMaxCount},
    {"max-reply-logprobs", kInt, kServe, "4194304", "Most log-probabilities that the replies to one request may hold until they are sent: prompts x n x max_tokens x (logprobs + 1), and those of prompts; more is answered 400. Streams hold none of their replies. 0: any number.", 0, 1e12},
    {"enable-logprob", kSwitch, kServe, "true", "Log-probabilities are always available; =false refuses them."},
    {"timeout-graceful-shutdown", kInt, kServe, "60", "Seconds that running requests get after SIGTERM; what still runs then ends with an error. A second signal ends the process within 1.2 s.", 0, 86400, "", "shutdown-timeout"},
    {"refuse-unknown-fields", kSwitch, kServe, "false", "Request fields that the API does not have are a 400, not ignored."},
    {"log-level", kChoice, kRuns, "info", "What is logged to stderr.", 0, 0, "trace|debug|info|warning|error"},
    {"log-format", kChoice, kRuns, "text", "json: each line of the log is an object with time, level and message.", 0, 0, "text|json"},
    {"access-log", kChoice, kServe, "on", "One line for each request: client, method, path, status, bytes, duration, request id. Never text of users.", 0, 0, "on|off"},
    {"disable-access-log", kSwitch, kServe, "false", "The same as --access-log off."},
};

constexpr Flag kSecurity[] = {
    {"api-key", kText, kServe, "", "A key that clients must send (Authorization: Bearer KEY, or x-api-key: KEY); may be repeated, any one opens. Default: the comma-separated list in $FD_API_KEY, if set. Others on this machine can read command lines: prefer --api-key-file.", 0, 0, "", "", Standing::kApplied, true},
    {"api-key-file", kText, kServe, "", "A file with one key a line, # for comments. Read again at SIGHUP."},
    {"share-cache-between-keys", kSwitch, kServe, "false", "Several API keys share the prefix cache. The time to a first token then tells one key's owner how another's prompts begin. Default: each of several keys has its own part."},
    {"trust-request-chat-template", kSwitch, kServe, "false", "Requests may bring a chat template of their own (field chat_template). It is a program that this server then runs, within limits of time and memory. Default: such requests are refused."},
    {"ssl-certfile", kText, kServe, "", "PEM file with the certificate and its chain: HTTPS instead of HTTP. Read again at SIGHUP."},
    {"ssl-keyfile", kText, kServe, "", "PEM file with the certificate's private key, without a password. Read again at SIGHUP."},
    {"allowed-origins", kText, kServe, "", "Origins whose web pages may call the server (CORS): https://chat.example.org, or * for all. May be repeated, or a JSON list as in [\"*\"]. Default: only the server's own; requests of other pages are answered 403.", 0, 0, "", "", Standing::kApplied, true},
    {"allowed-methods", kText, kServe, "*", "Methods that such pages may use; repeated or a JSON list.", 0, 0, "", "", Standing::kApplied, true},
    {"allowed-headers", kText, kServe, "*", "Headers that such pages may send; repeated or a JSON list.", 0, 0, "", "", Standing::kApplied, true},
    {"allow-credentials", kSwitch, kServe, "false", "Such pages may send cookies and the like; not with --allowed-origins *."},
    {"allowed-hosts", kText, kServe, "", "Names by which clients may call the server (the Host header), * for any; repeated or a JSON list. Default: any, but on a loopback --host only its own names, so that web pages cannot reach it by DNS rebinding.", 0, 0, "", "", Standing::kApplied, true},
    {"max-body-size", kInt, kServe, "16777216", "Largest request body, in bytes; more is answered 413.", 1024, 1 << 30},
    {"max-header-size", kInt, kServe, "16384", "Largest request line and headers, in bytes; more is answered 431.", 1024, 1 << 20},
    {"max-connections", kInt, kServe, "4096", "Connections at a time. When all are in use, a new one takes the place of the one that has been silent longest.", 1, 1e6},
    {"header-timeout", kFloat, kServe, "30", "Seconds that a request's headers, or a TLS handshake, may take.", 0.1, 86400},
    {"body-timeout", kFloat, kServe, "120", "Seconds that a request's body may take. After 10 s it must also average 1 KiB/s.", 0.1, 86400},
    {"timeout-keep-alive", kFloat, kServe, "180", "Seconds that a connection may wait for its next request. Clients keep theirs for up to 120 s: stay above, or they meet closed ones.", 1, 86400, "", "keep-alive-timeout"},
};

constexpr Flag kGenerate[] = {
    {"prompt", kText, kPredict, "", "A prompt; may be repeated.", 0, 0, "", "", Standing::kApplied, true},
    {"prompt-token-ids", kText, kPredict, "", "A prompt as token ids, as in 1,2,3; needs no tokenizer. May be repeated.", 0, 0, "", "", Standing::kApplied, true},
    {"data-file", kText, kPredict, "", "JSON lines {\"src\", \"tgt\"}; src may be a list of chat turns. Or {\"messages\"}, as chat saves them."},
    {"output-file", kText, kPredict, "", "Where the JSON lines go; default: stdout."},
    {"chat", kSwitch, kPredict, "", "Prompts are what a user says and go through the chat template. Default: if the model has one. --no-chat: raw text."},
    {"system", kText, kChat, "", "The system message."},
    {"message", kText, kChat, "", "Answer this one message and leave."},
    {"history", kSwitch, kChat, "true", "Keep what is typed for later sessions; --no-history: keep nothing."},
    {"max-tokens", kInt, kChat, "0", "Most tokens of an answer; 0: what the context leaves. Default: the model's recommendation, else 0.", 0, kMaxCount, "", "max-length"},
    {"temperature", kFloat, kChat, "", "0: the most likely token always. Default: the model's recommendation, else 1.", 0, 100},
    {"top-p", kFloat, kChat, "", "As for predict. Default: the model's recommendation, else 1.", 0, 1},
    {"top-k", kInt, kChat, "", "As for predict. Default: the model's recommendation, else all.", -1, kMaxCount},
    {"repetition-penalty", kFloat, kChat, "", "As for predict. Default: the model's recommendation, else 1.", 0.01, 100},
    {"max-tokens", kInt, kPredict, "128", "Most tokens to generate.", 1, kMaxCount, "", "max-length"},
    {"min-tokens", kInt, kPredict | kChat, "0", "Fewest tokens before the end is allowed.", 0, kMaxCount},
    {"temperature", kFloat, kPredict, "0", "0: the most likely token always.", 0, 100},
    {"top-p", kFloat, kPredict, "1", "Draw from the most likely tokens that reach this probability.", 0, 1},
    {"top-k", kInt, kPredict, "0", "Draw from so many; 0: all.", -1, kMaxCount},
    {"min-p", kFloat, kPredict | kChat, "0", "Drop tokens less likely than this part of the best.", 0, 1},
    {"repetition-penalty", kFloat, kPredict, "1", "Above 1: what has been said becomes less likely.", 0.01, 100},
    {"presence-penalty", kFloat, kPredict | kChat, "0", "Subtracted from logits of tokens in the output.", -2, 2},
    {"frequency-penalty", kFloat, kPredict | kChat, "0", "The same for each time that they appear.", -2, 2},
    {"ignore-eos", kSwitch, kPredict, "false", "Go on to --max-tokens whatever the model says."},
    {"dump-logits", kText, kPredict, "", "Write the float32 logits of every prompt row, [rows, vocab], as .npy. One prompt only."},
    {"chunk-size", kInt, kPredict, "0", "With --dump-logits: rows per step; 0: all at once.", 0, kMaxCount},
};

constexpr Flag kTokens[] = {
    {"special", kSwitch, kTokenize, "true", "--no-special: neither BOS nor EOS is added."},
    {"decode", kSwitch, kTokenize, "false", "Arrays of ids in, JSON strings out."},
    {"chat", kText, kTokenize, "", "Render a file {\"messages\": [...], \"tools\": ...} with the chat template."},
    {"generation-prompt", kSwitch, kTokenize, "true", "--no-generation-prompt: without the assistant's opening."},
};

constexpr Flag kBenchmarks[] = {
    {"input-len", kInt, kBench, "512", "Prompt tokens of each request.", 1, kMaxCount},
    {"output-len", kInt, kBench, "64", "Generated tokens of each request.", 1, kMaxCount},
    {"batch-size", kInt, kBench, "1", "latency: requests that run together.", 1, 16384},
    {"num-prompts", kInt, kBench, "16", "Requests (throughput, serve, simulate); with --trace at most so many.", 1, 1e6},
    {"url", kText, kBench, "http://127.0.0.1:8000", "serve: the server, any that speaks OpenAI's protocol over http.", 0, 0},
    {"key", kText, kBench, "", "serve: its API key.", 0, 0},
    {"endpoint", kChoice, kBench, "completions", "serve: which endpoint.", 0, 0, "completions|chat"},
    {"trace", kText, kBench, "", "serve, simulate: replay this trace (Mooncake JSON lines or Azure CSV).", 0, 0},
    {"trace-speed", kFloat, kBench, "1", "serve, simulate: play the trace so many times as fast.", 1e-6, 1e6},
    {"request-rate", kFloat, kBench, "", "serve, simulate: requests a second, as a Poisson process, instead of the trace's times.", 1e-6, 1e6},
    {"concurrency", kInt, kBench, "0", "serve: so many requests at a time, whatever their times; 0: at their times.", 0, 65536},
    {"slo-ttft", kFloat, kBench, "0", "serve: milliseconds to the first token within which a request is good; 0: any.", 0, 1e9},
    {"slo-tpot", kFloat, kBench, "0", "serve: milliseconds per output token within which a request is good; 0: any.", 0, 1e9},
    {"json", kSwitch, kBench, "false", "serve: one JSON object instead of a table."},
    {"sim-tflops", kFloat, kBench, "600", "simulate: TFLOP/s that the machine reaches.", 1e-6, 1e9},
    {"sim-bandwidth", kFloat, kBench, "4000", "simulate: GB/s that it reads.", 1e-6, 1e9},
    {"sim-kv-memory", kFloat, kBench, "80", "simulate: GB for the KV cache.", 1e-6, 1e6},
    {"sim-step-us", kFloat, kBench, "500", "simulate: microseconds that every step costs besides.", 0, 1e9},
    {"sim-policy", kChoice, kBench, "default", "simulate: fifo: first come, first served, to compare with.", 0, 0, "default|fifo"},
    {"max-input", kInt, kBench, "", "simulate: leave out requests with longer prompts.", 1, kMaxCount},
    {"sim-weight-bytes", kFloat, kBench, "2", "simulate: bytes of one weight.", 0.1, 8},
};

// Known to FastDeploy's users, not built yet.
constexpr unsigned kAll = kSizes;
constexpr Standing kNotYet = Standing::kLater;
constexpr Flag kLaterFlags[] = {
    {"tensor-parallel-size", kInt, kAll, "1", "Tensor parallelism.", 1, 1024, "", "tp", kNotYet},
    {"data-parallel-size", kInt, kAll, "1", "Data parallelism.", 1, 1024, "", "", kNotYet},
    {"local-data-parallel-id", kInt, kAll, "0", "Rank among data-parallel engines.", 0, 1024, "", "", kNotYet},
    {"enable-expert-parallel", kSwitch, kAll, "false", "Experts spread over ranks.", 0, 0, "", "", kNotYet},
    {"enable-eplb", kSwitch, kAll, "false", "Balance experts with copies.", 0, 0, "", "", kNotYet},
    {"eplb-config", kText, kAll, "", "Settings of expert balancing (JSON).", 0, 0, "", "", kNotYet},
    {"ips", kText, kAll, "", "Addresses of the nodes.", 0, 0, "", "", kNotYet},
    {"splitwise-role", kChoice, kAll, "mixed", "Prefill/decode disaggregation.", 0, 0, "mixed|prefill|decode", "", kNotYet},
    {"innode-prefill-ports", kText, kAll, "", "Prefill engines of this node.", 0, 0, "", "", kNotYet},
    {"cache-transfer-protocol", kText, kAll, "ipc,rdma", "How KV travels.", 0, 0, "", "", kNotYet},
    {"rdma-comm-ports", kText, kAll, "", "RDMA ports.", 0, 0, "", "", kNotYet},
    {"pd-comm-port", kText, kAll, "", "Disaggregation port.", 0, 0, "", "", kNotYet},
    {"router", kText, kAll, "", "Router to register with.", 0, 0, "", "", kNotYet},
    {"quantization", kText, kAll, "", "Quantize weights while loading.", 0, 0, "", "", kNotYet},
    {"speculative-config", kText, kAll, "", "Speculative decoding (JSON).", 0, 0, "", "", kNotYet},
    {"controller-port", kInt, kServe, "-1", "Port of the control endpoints.", -1, 65535, "", "", kNotYet},
    {"reasoning-parser", kText, kServe, "", "Splits reasoning from content.", 0, 0, "", "", kNotYet},
    {"tool-call-parser", kText, kServe, "", "Finds tool calls in replies.", 0, 0, "", "", kNotYet},
    {"guided-decoding-backend", kText, kServe, "off", "Structured output.", 0, 0, "", "", kNotYet},
    {"guided-decoding-disable-any-whitespace", kSwitch, kServe, "false", "No free whitespace in JSON.", 0, 0, "", "", kNotYet},
    {"logprobs-mode", kChoice, kServe, "raw_logprobs", "Which log-probabilities are given.", 0, 0, "raw_logprobs|processed_logprobs|raw_logits|processed_logits", "", kNotYet},
    {"logits-processors", kText, kServe, "", "Logits processors by name.", 0, 0, "", "", kNotYet, true},
    {"enable-early-stop", kSwitch, kServe, "false", "Stop replies that repeat themselves.", 0, 0, "", "", kNotYet},
    {"early-stop-config", kText, kServe, "", "Settings of early stop (JSON).", 0, 0, "", "", kNotYet},
    {"enable-keep-sampling-mask", kSwitch, kServe, "false", "Stream which tokens could be drawn.", 0, 0, "", "", kNotYet},
    {"enable-entropy", kSwitch, kServe, "false", "Entropy of each draw.", 0, 0, "", "", kNotYet},
    {"limit-mm-per-prompt", kText, kServe, "", "Media in one prompt (JSON).", 0, 0, "", "", kNotYet},
    {"mm-processor-kwargs", kText, kServe, "", "Media processing (JSON).", 0, 0, "", "", kNotYet},
    {"max-encoder-cache", kInt, kServe, "-1", "Encoder outputs kept, tokens.", -1, kMaxCount, "", "", kNotYet},
    {"max-processor-cache", kFloat, kServe, "-1", "Prepared images kept, GiB.", -1, kInf, "", "", kNotYet},
    {"disable-chunked-mm-input", kSwitch, kServe, "false", "Keep media whole.", 0, 0, "", "", kNotYet},
    {"enable-mm-output", kSwitch, kServe, "false", "Media in replies.", 0, 0, "", "", kNotYet},
    {"lm-head-fp32", kSwitch, kAll, "false", "Head in float32.", 0, 0, "", "", kNotYet},
    {"dynamic-load-weight", kSwitch, kServe, "false", "Weights change while serving.", 0, 0, "", "", kNotYet},
    {"load-strategy", kText, kServe, "normal", "How weights change.", 0, 0, "", "", kNotYet},
    {"rsync-config", kText, kServe, "", "Weights from elsewhere (JSON).", 0, 0, "", "", kNotYet},
    {"plas-attention-config", kText, kAll, "", "Sparse attention (JSON).", 0, 0, "", "", kNotYet},
    {"routing-replay-config", kText, kAll, "", "Record expert routing (JSON).", 0, 0, "", "", kNotYet},
    {"enable-chunked-moe", kSwitch, kAll, "false", "Cut MoE input.", 0, 0, "", "", kNotYet},
    {"chunked-moe-size", kInt, kAll, "256", "Rows of a piece.", 1, kMaxCount, "", "", kNotYet},
    {"scheduler-name", kText, kServe, "local", "Request scheduler over instances.", 0, 0, "", "", kNotYet},
    {"scheduler-host", kText, kServe, "127.0.0.1", "Its Redis host.", 0, 0, "", "", kNotYet},
    {"scheduler-port", kInt, kServe, "6379", "Its Redis port.", 0, 65535, "", "", kNotYet},
    {"scheduler-topic", kText, kServe, "default", "Its topic.", 0, 0, "", "", kNotYet},
    {"task", kText, kServe, "generate", "Pooling tasks.", 0, 0, "", "", kNotYet},
    {"runner", kText, kServe, "auto", "Runner type.", 0, 0, "", "", kNotYet},
    {"convert", kText, kServe, "auto", "Adapter conversion.", 0, 0, "", "", kNotYet},
    {"override-pooler-config", kText, kServe, "", "Pooler settings (JSON).", 0, 0, "", "", kNotYet},
    {"trace-enable", kSwitch, kServe, "false", "OpenTelemetry.", 0, 0, "", "", kNotYet},
    {"otlp-traces-endpoint", kText, kServe, "", "Where traces go.", 0, 0, "", "", kNotYet},
    {"benchmark-metrics-config", kText, kServe, "", "Rolling benchmark log (JSON).", 0, 0, "", "", kNotYet},
    {"config", kText, kServe, "", "Flags from a YAML file.", 0, 0, "", "", kNotYet},
};

// Known, and never needed: how FastDeploy's processes find each other, and its older modes.
constexpr Standing kNone = Standing::kMeaningless;
constexpr Flag kMeaninglessFlags[] = {
    {"revision", kText, kAll, "master", "Branch of a model hub; models are local folders here.", 0, 0, "", "", kNone},
    {"model-impl", kText, kAll, "auto", "There is one implementation.", 0, 0, "", "", kNone},
    {"load-choices", kText, kAll, "default_v1", "There is one loader.", 0, 0, "", "", kNone},
    {"use-warmup", kInt, kAll, "0", "Nothing is compiled at run time.", 0, 1, "", "", kNone},
    {"prealloc-dec-block-slot-num-threshold", kInt, kAll, "12", "Blocks are given on demand.", 0, kMaxCount, "", "", kNone},
    {"enable-output-caching", kSwitch, kAll, "true", "Generated tokens are always cached.", 0, 0, "", "", kNone},
    {"enable-mm", kSwitch, kServe, "false", "Deprecated.", 0, 0, "", "", kNone},
    {"tool-parser-plugin", kText, kServe, "", "Python plugins.", 0, 0, "", "", kNone},
    {"tokenizer-base-url", kText, kServe, "", "The tokenizer is built in.", 0, 0, "", "", kNone},
    {"engine-worker-queue-port", kText, kAll, "", "Process plumbing.", 0, 0, "", "", kNone},
    {"cache-queue-port", kText, kAll, "", "Process plumbing.", 0, 0, "", "", kNone},
    {"skip-port-check", kSwitch, kAll, "false", "Process plumbing.", 0, 0, "", "", kNone},
    {"timeout", kInt, kServe, "0", "Process plumbing.", 0, kMaxCount, "", "", kNone},
    {"disable-custom-all-reduce", kSwitch, kAll, "false", "CUDA plumbing.", 0, 0, "", "", kNone},
    {"enable-custom-all-reduce", kSwitch, kAll, "true", "CUDA plumbing.", 0, 0, "", "", kNone},
    {"use-internode-ll-two-stage", kSwitch, kAll, "false", "DeepEP plumbing.", 0, 0, "", "", kNone},
    {"disable-sequence-parallel-moe", kSwitch, kAll, "false", "MoE plumbing.", 0, 0, "", "", kNone},
    {"shutdown-comm-group-if-worker-idle", kSwitch, kAll, "false", "Process plumbing.", 0, 0, "", "", kNone},
    {"scheduler-password", kText, kServe, "", "Redis plumbing.", 0, 0, "", "", kNone},
    {"scheduler-db", kInt, kServe, "0", "Redis plumbing.", 0, kMaxCount, "", "", kNone},
    {"scheduler-max-size", kInt, kServe, "-1", "Request scheduler plumbing.", -1, kMaxCount, "", "", kNone},
    {"scheduler-ttl", kInt, kServe, "900", "Request scheduler plumbing.", 0, kMaxCount, "", "", kNone},
    {"scheduler-min-load-score", kInt, kServe, "3", "Request scheduler plumbing.", 0, kMaxCount, "", "", kNone},
    {"scheduler-load-shards-num", kInt, kServe, "1", "Request scheduler plumbing.", 0, kMaxCount, "", "", kNone},
    {"scheduler-sync-period", kInt, kServe, "5", "Request scheduler plumbing.", 0, kMaxCount, "", "", kNone},
    {"scheduler-expire-period", kInt, kServe, "3000", "Request scheduler plumbing.", 0, kMaxCount, "", "", kNone},
    {"scheduler-release-load-expire-period", kInt, kServe, "600", "Request scheduler plumbing.", 0, kMaxCount, "", "", kNone},
    {"scheduler-reader-parallel", kInt, kServe, "4", "Request scheduler plumbing.", 0, kMaxCount, "", "", kNone},
    {"scheduler-writer-parallel", kInt, kServe, "4", "Request scheduler plumbing.", 0, kMaxCount, "", "", kNone},
    {"scheduler-reader-batch-size", kInt, kServe, "200", "Request scheduler plumbing.", 0, kMaxCount, "", "", kNone},
    {"scheduler-writer-batch-size", kInt, kServe, "200", "Request scheduler plumbing.", 0, kMaxCount, "", "", kNone},
};

constexpr FlagGroup kGroups[] = {
    {"Model", kModel},
    {"Memory and scheduling", kMemory},
    {"Server", kServer},
    {"Security and limits", kSecurity},
    {"Prompts and generation", kGenerate},
    {"Tokens", kTokens},
    {"Benchmarks", kBenchmarks},
    {"Known, not there yet (one warning)", kLaterFlags},
    {"Known, without meaning in Skiff (one warning)", kMeaninglessFlags},
};

// clang-format on

}  // namespace

std::span<const FlagGroup> flag_groups() { return kGroups; }

}  // namespace skiff
