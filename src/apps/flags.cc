// The flags of every command: names, defaults and meanings of FastDeploy 2.x where it has them.
// tools/make_parameters.sh turns this table into docs/parameters.md.
#include <limits>

#include "apps/args.h"

namespace skiff::apps {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kMaxCount = 1 << 30;
using enum Kind;

// Each flag is one line, however long.
// clang-format off

constexpr Flag kModel[] = {
    {"model", kText, kSizes | kTokenize | kConstrain | kQuantize, "", "Model folder, in Hugging Face or Paddle layout (or give it without a flag)."},
    {"model-config-name", kText, kSizes, "config.json", "Name of the configuration file in the folder."},
    {"tokenizer", kText, kTexts, "", "Folder of the tokenizer; default: the model folder."},
    {"served-model-name", kText, kServices | kBench, "", "Name that clients use; may be repeated. Default: the folder's name. \"default\" always works.", 0, 0, "", "", Standing::kApplied, true},
    {"dtype", kChoice, kSizes, "auto", "Type of the arithmetic and of the weights in memory. auto: bfloat16 for a bfloat16 or float16 checkpoint, else float32.", 0, 0, "auto|float32|bfloat16"},
    {"device", kText, kSizes, "auto", "auto (a CUDA device where there is one, else the CPU), cpu, cuda, cuda:N, or reference, the slow backend that the others are tested against."},
    {"load-format", kChoice, kRuns, "auto", "dummy: random weights of the right shapes from config.json alone, for benchmarks.", 0, 0, "auto|dummy"},
    {"quantization", kText, kSizes, "", "Quantize the weights of linear layers while loading (docs/quantization.md): wint8 (weight_only_int8), wint4 (weight_only_int4; experts in 4 bits, the other layers of such a model in 8), int4, block_wise_fp8, a8w8, or FastDeploy's mix_quant as JSON."},
    {"quantization-config", kText, kSizes, "", "The same for each kind of layer, as JSON: {\"experts\": \"wint4\", \"dense\": \"wint8\", \"attention\": \"none\", \"head\": \"wint8\"}; changes what --quantization says."},
    {"runner", kChoice, kSizes, "auto", "generate: a model that continues text. pooling: one that makes a vector of it, for /v1/embeddings, /v1/score, /v1/rerank, /v1/classify and /v1/reward. auto: pooling where the checkpoint has no language head, or has a modules.json of sentence-transformers.", 0, 0, "auto|generate|pooling"},
    {"convert", kChoice, kSizes, "auto", "What a model that is pooled gives. embed: the row behind its last norm, whatever it was trained for. classify: the scores of its classes or, without such a head, of the tokens \"no\" and \"yes\", as Qwen3-Reranker. reward: the scores as they are. auto: classify for ...ForSequenceClassification, else embed. none: only what the checkpoint itself was made for. All but auto and none choose --runner pooling.", 0, 0, "auto|none|embed|classify|reward"},
    {"task", kChoice, kSizes, "auto", "An older way to choose --runner and --convert: generate, pooling, or embed, classify, reward, score (which is classify) with pooling.", 0, 0, "auto|generate|pooling|embed|classify|reward|score"},
    {"override-pooler-config", kText, kSizes, "", "How a model is pooled, as JSON, against what its files say: pooling_type (LAST, CLS, MEAN), normalize, activation, is_matryoshka, matryoshka_dimensions. Without files: LAST, normalized."},
    {"use-cudagraph", kSwitch, kSizes, "true", "Record decode steps as CUDA graphs and replay them."},
    {"graph-optimization-config", kText, kSizes, "", "CUDA graph settings as JSON: use_cudagraph, and cudagraph_capture_sizes, the batch sizes to record; graph_opt_level has no effect."},
    {"fuse-single-row", kSwitch, kSizes, "true", "CUDA: while one sequence runs, fuse the operations between two attentions into one kernel. Its blocks wait for each other, so turn it off if other processes run kernels on the same GPU; under CUDA MPS it is off automatically. Models with experts never use it."},
    {"batch-invariant", kSwitch, kSizes, "false", "CUDA: the same request gives the same tokens, bit for bit, whatever else is in the batch and however its prompt is cut or found in the cache. Slower (docs/performance.md); needs a device of compute capability 9.0, and turns --fuse-single-row off. The CPU backend always computes so."},
    {"threads", kInt, kRuns | kQuantize, "0", "Threads of the CPU backend; 0: one per core that this process may use.", 0, 4096},
    {"chat-template", kText, kTexts, "", "A chat template, or a file with one, that replaces the model's own."},
    {"seed", kInt, kRuns | kQuantize, "0", "Seed for requests that have none, and for dummy weights. serve: 0 means a new seed at each start; chat: a new seed for each answer unless given. quantize: which texts are held out, and what the model writes without --data.", 0, 9.2e18},
};

constexpr Flag kMemory[] = {
    {"max-model-len", kInt, kSizes, "0", "Most tokens of a prompt and its output together; 0: what the model supports, at most 32768.", 0, kMaxCount},
    {"max-num-seqs", kInt, kSizes, "", "Most sequences in one step. Default: 8 on the CPU; on a CUDA device as many as its memory holds 2,048 tokens of each for, from 8 to 256; chat: 1; bench latency, bench throughput: 8, or --batch-size if that is more.", 1, 65536},
    {"max-num-batched-tokens", kInt, kSizes, "0", "Most rows (tokens) in one step; longer prompts are split into chunks. 0: up to 8192.", 0, kMaxCount},
    {"max-num-partial-prefills", kInt, kRuns, "0", "Most prompts that may be partly computed at a time; 0: no limit.", 0, kMaxCount},
    {"max-long-partial-prefills", kInt, kRuns, "1", "Most long prompts among them; 0: no limit. Short prompts go before long ones, within bounds.", 0, kMaxCount},
    {"long-prefill-token-threshold", kInt, kRuns, "0", "Tokens above which a prompt is long; 0: what takes more than sixteen steps of --step-time, or, where no step time is aimed at, 4 % of the context; at least 512.", 0, kMaxCount},
    {"step-time", kFloat, kRuns, "0", "Milliseconds that a step with prompts should take: a shorter one lets running requests decode more often, a longer one computes prompts at a better rate. 0: the least at which prompts run at nearly the best rate measured at start-up, within bounds; longer for a prompt that is alone, and while very many wait. predict, bench latency, bench throughput: no limit unless given.", 0, 1e6},
    {"block-size", kInt, kSizes, "64", "Tokens in one KV block.", 1, 4096},
    {"kv-cache-dtype", kText, kSizes, "auto", "How the KV cache is stored: auto (as --dtype), float32, bfloat16, int8, fp8 (e4m3) or int4 (docs/quantization.md). FastDeploy's and vLLM's names for these are known, too."},
    {"kv-cache-scales", kChoice, kSizes, "auto", "Scales of an int8 or fp8 KV cache. auto: those that were calibrated with the checkpoint, if it has any; else, and with token, one for each token and KV head.", 0, 0, "auto|token"},
    {"gpu-memory-utilization", kFloat, kSizes, "0.9", "Fraction of the memory that may be used: of a GPU's total memory, or of the host memory that is available.", 0.01, 1, "", "memory-utilization"},
    {"num-gpu-blocks-override", kInt, kSizes, "0", "Number of KV blocks; 0: from the memory plan.", 0, kMaxCount},
    {"enable-prefix-caching", kSwitch, kSizes, "true", "Reuse the KV blocks of prompts with a common prefix."},
    {"swap-space", kFloat, kSizes, "0", "Host memory for cached blocks that the pool has no room for, in GB (2^30 bytes); 0: none.", 0, 1 << 20},
    {"kvcache-storage-backend", kText, kSizes, "", "file: cached blocks are also kept in --kvcache-storage-path and found again after a restart. FastDeploy's other backends, mooncake and attention_store, are not supported."},
    {"kvcache-storage-path", kText, kSizes, "", "Folder for these blocks. Each server needs its own; it is created if it does not exist."},
    {"kvcache-storage-size", kFloat, kSizes, "10", "Largest size of the file in that folder, in GB.", 0, 1 << 20},
    {"write-policy", kChoice, kSizes, "write_through", "When blocks are written to that file. write_through: as soon as they are full.", 0, 0, "write_through"},
    {"static-decode-blocks", kInt, kSizes, "0", "KV blocks that must stay free for each running sequence when a request is admitted. FastDeploy's older scheduler reserves them.", 0, 1 << 24},
    {"kv-cache-ratio", kFloat, kSizes, "", "Accepted with a warning: prompts and output share one pool of blocks.", 0, 1},
    {"enable-chunked-prefill", kSwitch, kSizes, "true", "Split long prompts into chunks, so that other requests keep running."},
    {"enable-overlap-schedule", kSwitch, kSizes, "true", "Plan the next step while this one computes."},
};

constexpr Flag kServer[] = {
    {"host", kText, kServe, "0.0.0.0", "Address to listen on."},
    {"port", kInt, kServe, "8000", "Port to listen on; 0: any free one. $SERVICE_HTTP_PORT, if set, replaces the default.", 0, 65535},
    {"grpc-port", kInt, kServe, "", "Port of the gRPC service (KServe v2 as Triton and PaddleNLP's server speak it; docs/api.md), with the host, keys, TLS files and limits of the main port; 0: any free one. Default: $SERVICE_GRPC_PORT, if set, else none.", 0, 65535},
    {"metrics-port", kInt, kServe, "", "Metrics are on the main port; only the same number is accepted.", 0, 65535},
    {"workers", kInt, kServe, "2", "Threads that parse requests and tokenize.", 1, 1024},
    {"max-concurrency", kInt, kServe, "512", "Most requests at a time; more are answered 429.", 1, 1e6},
    {"scheduling-policy", kChoice, kServices, "fcfs", "fcfs: requests are served in the order of arrival, and a priority other than 0 is refused. priority: a request's field priority counts, lower first; use it only if clients can be trusted with it.", 0, 0, "fcfs|priority"},
    {"priority-ageing", kInt, kServices, "1000", "With --scheduling-policy priority: how many later requests may overtake a request for each unit of priority between them. 0: priorities have no effect.", 0, 1e9},
    {"max-waiting-tokens", kInt, kServe, "1000000", "Most prompt tokens that may wait for admission to the batch; further requests are answered 429. A request that finds the queue empty may always wait. 0: no limit.", 0, 1e12},
    {"max-waiting-time", kInt, kServices, "-1", "Seconds that a request may wait for admission; then it is answered 429. -1: no limit.", -1, 604800},
    {"request-timeout", kFloat, kServices, "0", "Seconds that a request may take from end to end; then it is answered 504. A request's field timeout may ask for less. 0: no limit.", 0, 604800},
    {"watchdog-timeout", kFloat, kServe, "300", "Seconds without a step, while requests wait, after which the process logs all stacks and exits with code 4. It must exceed the longest step. 0: never.", 0, 604800},
    {"max-logprobs", kInt, kServices, "20", "Most log-probabilities per position; -1: the whole vocabulary.", -1, kMaxCount},
    {"max-reply-logprobs", kInt, kServices, "4194304", "Most log-probabilities that the replies to one request may hold in memory: prompts x n x max_tokens x (logprobs + 1), plus those of prompts; a request for more is answered 400. A stream counts only those of its prompt. 0: no limit.", 0, 1e12},
    {"enable-logprob", kSwitch, kServices, "true", "Log-probabilities are always available; =false refuses them."},
    {"reasoning-parser", kText, kServices, "auto", "How the model writes its reasoning, by the names of FastDeploy, vLLM and SGLang (deepseek_r1, qwen3, ernie-x1, ...); an unknown name shows the list. auto: as its chat template says. none: reasoning stays part of the content."},
    {"reasoning-field", kChoice, kServe, "reasoning_content", "The field of chat messages that holds the reasoning: the older name, vLLM's newer one, or both.", 0, 0, "reasoning_content|reasoning|both"},
    {"tool-call-parser", kText, kServices, "auto", "How the model writes tool calls, by the names of FastDeploy, vLLM and SGLang (hermes, qwen3_coder, llama3_json, mistral, deepseek_v3, ...); an unknown name shows the list. auto: as its chat template says. none: calls stay part of the content."},
    {"enable-auto-tool-choice", kSwitch, kServices, "true", "Calls that the model makes of its own accord are reported as such; =false: they stay part of the content."},
    {"max-dec-len", kInt, kServe, "0", "PaddleNLP's protocol: most tokens of a reply, and as many as a request gets that does not say; 0: what the context leaves.", 0, kMaxCount},
    {"disable-streaming", kSwitch, kServe, "false", "PaddleNLP's protocol: streams have nothing but their last object, which holds the whole reply. Default: $DISABLE_STREAMING, if set."},
    {"timeout-graceful-shutdown", kInt, kServe, "60", "Seconds that running requests get after SIGTERM; requests that still run then end with an error. A second signal ends the process within 1.2 s.", 0, 86400, "", "shutdown-timeout"},
    {"refuse-unknown-fields", kSwitch, kServices, "false", "Answer 400 to a request with unknown fields instead of ignoring them."},
    {"webui", kSwitch, kServe, "true", "Browsers get a page at / to chat with the model and to see the server's load; --no-webui: they get what other clients get there."},
    {"log-level", kChoice, kRuns, "info", "Least severe messages that are logged to stderr.", 0, 0, "trace|debug|info|warning|error"},
    {"log-format", kChoice, kRuns, "text", "json: each line of the log is an object with time, level and message.", 0, 0, "text|json"},
    {"access-log", kChoice, kServe, "on", "Log one line for each request: client, method, path, status, bytes, duration, request id. It never contains text of users.", 0, 0, "on|off"},
    {"disable-access-log", kSwitch, kServe, "false", "The same as --access-log off."},
    {"request-log", kText, kServe, "", "A file to which one JSON line is appended for each request (docs/operations.md): id, route, status, token counts, times, what constrained it. It holds no text. Opened again at SIGHUP."},
    {"otlp-traces-endpoint", kText, kServe, "", "Where spans of requests are sent, by OTLP over HTTP as JSON: http://collector:4318/v1/traces. They hold no text. Headers are read from $OTEL_EXPORTER_OTLP_HEADERS, the name of the service from $OTEL_SERVICE_NAME. Default: none are sent."},
};

constexpr Flag kSecurity[] = {
    {"api-key", kText, kServe, "", "A key that clients must send (Authorization: Bearer KEY, or x-api-key: KEY); may be repeated, and any of them is accepted. Default: the comma-separated list in $FD_API_KEY, if set. Other users of this machine can read command lines: prefer --api-key-file.", 0, 0, "", "", Standing::kApplied, true},
    {"api-key-file", kText, kServe, "", "A file with one key per line and # for comments. It is read again at SIGHUP."},
    {"admin-key", kText, kServe, "", "A key of the operator's: it opens the control endpoints (docs/operations.md: pause, abort requests, ...) and nothing else. May be repeated. Default: there are no control endpoints. Prefer --admin-key-file, as for --api-key.", 0, 0, "", "", Standing::kApplied, true},
    {"admin-key-file", kText, kServe, "", "A file with such keys, one per line and # for comments. It is read again at SIGHUP."},
    {"share-cache-between-keys", kSwitch, kServe, "false", "Several API keys share the prefix cache. The time to the first token then reveals to one key's owner how another's prompts begin. Default: each of several keys has its own part."},
    {"trust-request-chat-template", kSwitch, kServe, "false", "Requests may bring a chat template of their own (field chat_template). A template is a program, which the server runs within limits on time and memory. Default: such requests are refused."},
    {"ssl-certfile", kText, kServe, "", "PEM file with the certificate and its chain: HTTPS instead of HTTP. Read again at SIGHUP."},
    {"ssl-keyfile", kText, kServe, "", "PEM file with the certificate's private key, without a password. Read again at SIGHUP."},
    {"allowed-origins", kText, kServe, "", "Origins whose web pages may call the server (CORS): https://chat.example.org, or * for all. May be repeated, or a JSON list as in [\"*\"]. Default: only the server's own origin; requests from other pages are answered 403.", 0, 0, "", "", Standing::kApplied, true},
    {"allowed-methods", kText, kServe, "*", "Methods that such pages may use; repeated or a JSON list.", 0, 0, "", "", Standing::kApplied, true},
    {"allowed-headers", kText, kServe, "*", "Headers that such pages may send; repeated or a JSON list.", 0, 0, "", "", Standing::kApplied, true},
    {"allow-credentials", kSwitch, kServe, "false", "Such pages may send credentials such as cookies; not with --allowed-origins *."},
    {"allowed-hosts", kText, kServe, "", "Names by which clients may call the server (the Host header), * for any; repeated or a JSON list. Default: any; with a loopback --host only the loopback names, so that web pages cannot reach the server by DNS rebinding.", 0, 0, "", "", Standing::kApplied, true},
    {"max-body-size", kInt, kServe, "16777216", "Largest request body, in bytes; a larger one is answered 413.", 1024, 1 << 30},
    {"max-header-size", kInt, kServe, "16384", "Largest request line and headers together, in bytes; larger ones are answered 431.", 1024, 1 << 20},
    {"max-connections", kInt, kServe, "4096", "Most connections at a time. When all are in use, a new one replaces the one that has been idle longest.", 1, 1e6},
    {"header-timeout", kFloat, kServe, "30", "Seconds that a request's headers, or a TLS handshake, may take.", 0.1, 86400},
    {"body-timeout", kFloat, kServe, "120", "Seconds that a request's body may take. After 10 s it must also average 1 KiB/s.", 0.1, 86400},
    {"timeout-keep-alive", kFloat, kServe, "180", "Seconds that an idle connection is kept open. Clients keep theirs for up to 120 s, so a smaller value makes them reuse closed connections.", 1, 86400, "", "keep-alive-timeout"},
};

constexpr Flag kGenerate[] = {
    {"prompt", kText, kPredict, "", "A prompt; may be repeated.", 0, 0, "", "", Standing::kApplied, true},
    {"prompt-token-ids", kText, kPredict, "", "A prompt as token ids, as in 1,2,3; needs no tokenizer. May be repeated.", 0, 0, "", "", Standing::kApplied, true},
    {"data-file", kText, kPredict, "", "Prompts as JSON lines: {\"src\", \"tgt\"}, where src may be a list of chat turns, or {\"messages\"}, as chat saves them."},
    {"output-file", kText, kPredict, "", "File for the JSON lines of results; default: stdout."},
    {"chat", kSwitch, kPredict, "", "Render each prompt as a user message with the chat template. Default: if the model has a template. --no-chat: raw text."},
    {"system", kText, kChat, "", "The system message."},
    {"message", kText, kChat, "", "Answer this one message and exit."},
    {"history", kSwitch, kChat, "true", "Save typed lines for later sessions; --no-history: save nothing."},
    {"max-tokens", kInt, kChat, "0", "Most tokens of an answer; 0: as many as the context leaves. Default: the model's recommendation, else 0.", 0, kMaxCount, "", "max-length"},
    {"temperature", kFloat, kChat, "", "0: always the most likely token. Default: the model's recommendation, else 1.", 0, 100},
    {"top-p", kFloat, kChat, "", "As for predict. Default: the model's recommendation, else 1.", 0, 1},
    {"top-k", kInt, kChat, "", "As for predict. Default: the model's recommendation, else off.", -1, kMaxCount},
    {"repetition-penalty", kFloat, kChat, "", "As for predict. Default: the model's recommendation, else 1.", 0.01, 100},
    {"max-tokens", kInt, kPredict, "128", "Most tokens to generate.", 1, kMaxCount, "", "max-length"},
    {"min-tokens", kInt, kPredict | kChat, "0", "Fewest tokens before a stop token may end the output.", 0, kMaxCount},
    {"temperature", kFloat, kPredict, "0", "Divides the logits before sampling; 0: always the most likely token.", 0, 100},
    {"top-p", kFloat, kPredict, "1", "Sample from the most likely tokens whose probabilities add up to this value.", 0, 1},
    {"top-k", kInt, kPredict, "0", "Sample from the k most likely tokens; 0: off.", -1, kMaxCount},
    {"min-p", kFloat, kPredict | kChat, "0", "Drop tokens whose probability is below this fraction of the best one's.", 0, 1},
    {"repetition-penalty", kFloat, kPredict, "1", "Above 1: tokens of the prompt and the output become less likely.", 0.01, 100},
    {"presence-penalty", kFloat, kPredict | kChat, "0", "Subtracted from the logits of tokens that the output contains.", -2, 2},
    {"frequency-penalty", kFloat, kPredict | kChat, "0", "Subtracted from a token's logit for each time that the output contains it.", -2, 2},
    {"ignore-eos", kSwitch, kPredict, "false", "Generate up to --max-tokens even if the model draws a stop token."},
    {"dump-logits", kText, kPredict, "", "Write the float32 logits of every prompt row, [rows, vocab], as .npy. One prompt only."},
    {"chunk-size", kInt, kPredict, "0", "With --dump-logits: rows per step; 0: all at once.", 0, kMaxCount},
};

constexpr Flag kTokens[] = {
    {"special", kSwitch, kTokenize, "true", "--no-special: neither BOS nor EOS is added."},
    {"decode", kSwitch, kTokenize, "false", "Read arrays of ids and write JSON strings."},
    {"chat", kText, kTokenize, "", "Render a file {\"messages\": [...], \"tools\": ...} with the chat template."},
    {"generation-prompt", kSwitch, kTokenize, "true", "--no-generation-prompt: do not append the opening of the assistant's message."},
};

constexpr Flag kConstraints[] = {
    {"guided-decoding-backend", kChoice, kServices, "auto", "What constrains replies to a form. auto, xgrammar: this server's own engine; off: requests with a constraint are refused.", 0, 0, "auto|xgrammar|off"},
    {"guided-decoding-disable-any-whitespace", kSwitch, kServices | kConstrain, "false", "No whitespace between the tokens of JSON; otherwise nothing, one space, or a newline and at most 20 blanks."},
    {"guided-decoding-in-reasoning", kSwitch, kServices, "false", "A constraint holds from the first token of a reply; otherwise it begins where the reasoning ends."},
    {"json-schema", kText, kConstrain, "", "File with a JSON Schema."},
    {"regex", kText, kConstrain, "", "File with a regular expression that matches the whole text; line ends at its end are dropped."},
    {"grammar", kText, kConstrain, "", "File with a grammar: GBNF, or Lark where it has no ::=."},
    {"choice", kText, kConstrain, "", "File with a JSON list of strings."},
    {"structural-tag", kText, kConstrain, "", "File with a structural tag, as response_format takes it."},
    {"json-object", kSwitch, kConstrain, "false", "Any JSON object."},
};

// Whoever holds the process waits for no answer of 429, so the bounds are wider.
constexpr Flag kInProcess[] = {
    {"max-concurrency", kInt, kLibrary, "65536", "libskiff.so: most requests at a time; more are refused as busy.", 1, 1e6},
    {"max-waiting-tokens", kInt, kLibrary, "0", "libskiff.so: most prompt tokens that may wait for admission to the batch; further requests are refused as busy. 0: no limit.", 0, 1e12},
};

constexpr Flag kDownloads[] = {
    {"mirror", kText, kDownload, "", "Address of the server that has the model, as in https://mirror.example.org; no address is built in."},
    {"layout", kChoice, kDownload, "hub", "How the mirror names files. hub: MIRROR/NAME/resolve/REVISION/FILE; folder: MIRROR/NAME/FILE, with a file_list.txt of lines FILE:MD5 beside them.", 0, 0, "hub|folder"},
    {"revision", kText, kDownload, "main", "hub: the branch, tag or commit."},
    {"output", kText, kDownload, "", "Folder to write to; default: the last part of the model's name."},
    {"include", kText, kDownload, "", "Only files that match this pattern, as in *.safetensors; may be repeated.", 0, 0, "", "", Standing::kApplied, true},
    {"token-file", kText, kDownload, "", "A file with a token that is sent to the mirror (Authorization: Bearer), and to no server that it redirects to."},
    {"ca-file", kText, kDownload, "", "PEM file with the certificates to trust instead of the system's."},
    {"max-size", kFloat, kDownload, "2048", "Most that all files may have together, in GB.", 0.001, 1 << 20},
    {"retries", kInt, kDownload, "5", "How often a broken transfer is taken up again before it is given up.", 0, 1000},
    {"check", kSwitch, kDownload, "true", "--no-check: files that are there already in the right size are not read again to check them."},
};

constexpr Flag kBenchmarks[] = {
    {"input-len", kInt, kBench, "512", "Prompt tokens of each request.", 1, kMaxCount},
    {"output-len", kInt, kBench, "64", "Generated tokens of each request.", 1, kMaxCount},
    {"batch-size", kInt, kBench, "1", "latency: number of requests that run together.", 1, 16384},
    {"num-prompts", kInt, kBench, "16", "throughput, serve, simulate: number of requests; with --trace: at most this many.", 1, 1e6},
    {"rows", kText, kBench, "1,2,4,8,16..256:16,320..2048:64,3072,4096,8192", "steps: the numbers of rows to measure, as a list of numbers and of ranges such as 64..2048:64.", 0, 0},
    {"context", kInt, kBench, "1000", "steps: tokens before each row that decodes.", 1, kMaxCount},
    {"beside", kInt, kBench, "32", "steps: sequences that decode beside a prompt in the mixed steps.", 0, 16384},
    {"repetitions", kInt, kBench, "5", "steps: how often each step is timed; the middle time counts.", 1, 1e6},
    {"csv", kText, kBench, "", "steps: also write the table to this file, with commas.", 0, 0},
    {"url", kText, kBench, "http://127.0.0.1:8000", "serve: address of a server that speaks OpenAI's protocol over http.", 0, 0},
    {"key", kText, kBench, "", "serve: its API key.", 0, 0},
    {"endpoint", kChoice, kBench, "completions", "serve: the endpoint to call.", 0, 0, "completions|chat"},
    {"prompt-vocab", kInt, kBench, "0", "serve: prompts are arrays of random token ids below this number, so that their lengths are exact; 0: text of single letters.", 0, kMaxCount},
    {"trace", kText, kBench, "", "serve, simulate: replay this trace (Mooncake JSON lines or Azure CSV).", 0, 0},
    {"trace-speed", kFloat, kBench, "1", "serve, simulate: factor by which the trace is replayed faster.", 1e-6, 1e6},
    {"request-rate", kFloat, kBench, "", "serve, simulate: requests per second, as a Poisson process, instead of the trace's times.", 1e-6, 1e6},
    {"concurrency", kInt, kBench, "0", "serve: number of requests in flight, regardless of their times; 0: each is sent at its time.", 0, 65536},
    {"slo-ttft", kFloat, kBench, "0", "serve: limit on the milliseconds to the first token for a request to count as good; 0: none.", 0, 1e9},
    {"slo-tpot", kFloat, kBench, "0", "serve: limit on the milliseconds per output token for a request to count as good; 0: none.", 0, 1e9},
    {"json", kSwitch, kBench, "false", "serve: print one JSON object instead of a table."},
    {"sim-tflops", kFloat, kBench, "600", "simulate: arithmetic rate of the machine, in TFLOP/s.", 1e-6, 1e9},
    {"sim-bandwidth", kFloat, kBench, "4000", "simulate: read bandwidth of the machine, in GB/s.", 1e-6, 1e9},
    {"sim-kv-memory", kFloat, kBench, "80", "simulate: memory for the KV cache, in GB.", 1e-6, 1e6},
    {"sim-step-us", kFloat, kBench, "500", "simulate: fixed cost of every step, in microseconds.", 0, 1e9},
    {"sim-policy", kChoice, kBench, "default", "simulate: for comparison, rows bounds long prompts in rows instead of steps in time; fifo serves strictly in the order of arrival.", 0, 0, "default|rows|fifo"},
    {"sim-steps", kText, kBench, "", "simulate: take the times of steps from this file, which bench steps --csv has written, instead of from --sim-tflops, --sim-bandwidth and --sim-step-us."},
    {"max-input", kInt, kBench, "", "simulate: leave out requests with longer prompts.", 1, kMaxCount},
    {"sim-weight-bytes", kFloat, kBench, "2", "simulate: bytes of one weight.", 0.1, 8},
};

constexpr Flag kQuantizing[] = {
    {"to", kText, kQuantize, "", "Format of the weights: w4a16, gptq, awq (4 bits), w8a16, a8w8 (8-bit integers), fp8, fp8-block (8-bit floats).", 0, 0},
    {"out", kText, kQuantize, "", "Folder to write. It must not exist, or be empty; it appears when it is complete.", 0, 0},
    {"data", kText, kQuantize, "", "JSON lines to calibrate on and to measure with: {\"text\": ...}, {\"messages\": [...]} with or without \"answer\", or {\"ids\": [...]}. Default: texts that the model writes itself.", 0, 0},
    {"samples", kInt, kQuantize, "128", "Texts to calibrate on, at most.", 0, 1e6},
    {"eval-samples", kInt, kQuantize, "32", "Other texts, on which quality is measured, at most; 0: it is not.", 0, 1e6},
    {"sequence-length", kInt, kQuantize, "512", "Tokens of a text, at most; longer ones are cut in pieces, conversations at their end.", 2, 1 << 20},
    {"layout", kText, kQuantize, "", "How the tensors are stored: compressed-tensors, gptq or awq. Default: gptq and awq for --to of that name, else compressed-tensors.", 0, 0},
    {"group-size", kInt, kQuantize, "128", "4 bits: inputs that share a scale; -1: one scale for each output.", -1, 1 << 18},
    {"symmetric", kChoice, kQuantize, "auto", "4 bits: false stores a zero point beside each scale. auto: false for awq, else true.", 0, 0, "auto|true|false"},
    {"ignore", kText, kQuantize, "", "A layer that stays as it is, or what contains it (model.layers.0), or re: and a regular expression; may be repeated. lm_head, embeddings and routers always stay.", 0, 0, "", "", Standing::kApplied, true},
    {"kv-cache-dtype", kChoice, kQuantize, "auto", "fp8, int8: also store scales for the keys and values of such a cache, from the calibration texts.", 0, 0, "auto|fp8|int8"},
    {"clip-search", kSwitch, kQuantize, "true", "Integers: search the clipping of each scale. false: scales cover the largest weight."},
    {"rounding", kChoice, kQuantize, "auto", "nearest, or gptq, where what follows makes up for each rounding error; awq and a8w8 take either. auto: gptq for --to gptq, else nearest.", 0, 0, "auto|nearest|gptq"},
    {"act-order", kSwitch, kQuantize, "true", "--rounding gptq: round the columns with the largest inputs first."},
    {"damping", kFloat, kQuantize, "0.01", "--rounding gptq: added to the diagonal of the inputs' second moments, as a fraction of its mean.", 1e-6, 1},
    {"min-expert-tokens", kInt, kQuantize, "64", "Experts that see fewer calibration tokens are rounded to nearest.", 0, kMaxCount},
    {"shard-size", kFloat, kQuantize, "5", "Largest size of one safetensors file, in GB.", 1e-6, 1 << 20},
};

// Flags of FastDeploy whose features are not implemented yet.
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
    {"cache-transfer-protocol", kText, kAll, "ipc,rdma", "Transport of the KV cache between instances.", 0, 0, "", "", kNotYet},
    {"rdma-comm-ports", kText, kAll, "", "RDMA ports.", 0, 0, "", "", kNotYet},
    {"pd-comm-port", kText, kAll, "", "Disaggregation port.", 0, 0, "", "", kNotYet},
    {"router", kText, kAll, "", "Router to register with.", 0, 0, "", "", kNotYet},
    {"speculative-config", kText, kAll, "", "Speculative decoding (JSON).", 0, 0, "", "", kNotYet},
    {"logprobs-mode", kChoice, kServe, "raw_logprobs", "Which log-probabilities are returned.", 0, 0, "raw_logprobs|processed_logprobs|raw_logits|processed_logits", "", kNotYet},
    {"logits-processors", kText, kServe, "", "Logits processors by name.", 0, 0, "", "", kNotYet, true},
    {"enable-early-stop", kSwitch, kServe, "false", "Stop replies that repeat themselves.", 0, 0, "", "", kNotYet},
    {"early-stop-config", kText, kServe, "", "Settings of early stop (JSON).", 0, 0, "", "", kNotYet},
    {"enable-keep-sampling-mask", kSwitch, kServe, "false", "Return the set of tokens that could be drawn.", 0, 0, "", "", kNotYet},
    {"enable-entropy", kSwitch, kServe, "false", "Entropy of each draw.", 0, 0, "", "", kNotYet},
    {"limit-mm-per-prompt", kText, kServe, "", "Limits on media in one prompt (JSON).", 0, 0, "", "", kNotYet},
    {"mm-processor-kwargs", kText, kServe, "", "Settings of media processing (JSON).", 0, 0, "", "", kNotYet},
    {"max-encoder-cache", kInt, kServe, "-1", "Size of the encoder cache, in tokens.", -1, kMaxCount, "", "", kNotYet},
    {"max-processor-cache", kFloat, kServe, "-1", "Size of the cache of prepared images, in GiB.", -1, kInf, "", "", kNotYet},
    {"disable-chunked-mm-input", kSwitch, kServe, "false", "Do not split media between chunks.", 0, 0, "", "", kNotYet},
    {"enable-mm-output", kSwitch, kServe, "false", "Media in replies.", 0, 0, "", "", kNotYet},
    {"lm-head-fp32", kSwitch, kAll, "false", "Compute the output layer in float32.", 0, 0, "", "", kNotYet},
    {"dynamic-load-weight", kSwitch, kServe, "false", "Load new weights while serving.", 0, 0, "", "", kNotYet},
    {"load-strategy", kText, kServe, "normal", "How new weights are loaded.", 0, 0, "", "", kNotYet},
    {"rsync-config", kText, kServe, "", "Transfer of weights from other machines (JSON).", 0, 0, "", "", kNotYet},
    {"plas-attention-config", kText, kAll, "", "Sparse attention (JSON).", 0, 0, "", "", kNotYet},
    {"routing-replay-config", kText, kAll, "", "Record expert routing (JSON).", 0, 0, "", "", kNotYet},
    {"enable-chunked-moe", kSwitch, kAll, "false", "Split the input of MoE layers.", 0, 0, "", "", kNotYet},
    {"chunked-moe-size", kInt, kAll, "256", "Rows of one such piece.", 1, kMaxCount, "", "", kNotYet},
    {"scheduler-name", kText, kServe, "local", "Request scheduler over instances.", 0, 0, "", "", kNotYet},
    {"scheduler-host", kText, kServe, "127.0.0.1", "Redis host of the request scheduler.", 0, 0, "", "", kNotYet},
    {"scheduler-port", kInt, kServe, "6379", "Redis port of the request scheduler.", 0, 65535, "", "", kNotYet},
    {"scheduler-topic", kText, kServe, "default", "Topic of the request scheduler.", 0, 0, "", "", kNotYet},
    {"benchmark-metrics-config", kText, kServe, "", "Rolling benchmark log (JSON).", 0, 0, "", "", kNotYet},
    {"config", kText, kServe, "", "Flags from a YAML file.", 0, 0, "", "", kNotYet},
};

// Flags of FastDeploy that Skiff will never need: how its processes find each other, and its older
// modes.
constexpr Standing kNone = Standing::kMeaningless;
constexpr Flag kMeaninglessFlags[] = {
    {"revision", kText, kAll, "master", "Branch of a model hub; models are local folders here.", 0, 0, "", "", kNone},
    {"controller-port", kInt, kServe, "-1", "Control endpoints are on the main port, behind --admin-key.", -1, 65535, "", "", kNone},
    {"trace-enable", kSwitch, kServe, "false", "Spans are sent if --otlp-traces-endpoint is given.", 0, 0, "", "", kNone},
    {"model-impl", kText, kAll, "auto", "There is one implementation.", 0, 0, "", "", kNone},
    {"load-choices", kText, kAll, "default_v1", "There is one loader.", 0, 0, "", "", kNone},
    {"use-warmup", kInt, kAll, "0", "Nothing is compiled at run time.", 0, 1, "", "", kNone},
    {"prealloc-dec-block-slot-num-threshold", kInt, kAll, "12", "Blocks are allocated on demand.", 0, kMaxCount, "", "", kNone},
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
    {"Structured output", kConstraints},
    {"Quantizing", kQuantizing},
    {"Within another process (python.md)", kInProcess},
    {"Download", kDownloads},
    {"Benchmarks", kBenchmarks},
    {"Known, not implemented yet (one warning)", kLaterFlags},
    {"Known, without effect in Skiff (one warning)", kMeaninglessFlags},
};

// clang-format on

}  // namespace

std::span<const FlagGroup> flag_groups() { return kGroups; }

}  // namespace skiff::apps
