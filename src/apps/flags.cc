// The flags of every command: names, defaults and meanings of FastDeploy 2.x where it has them.
// tools/make_parameters.sh turns this table into docs/parameters.md.
#include <limits>

#include "apps/args.h"
#include "apps/flag_rows.h"

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
    {"quantization", kText, kSizes, "", "Quantize the weights of linear layers while loading (docs/quantization.md): wint8 (weight_only_int8), wint4 (weight_only_int4; experts in 4 bits, the other layers of such a model in 8), int4, block_wise_fp8 (a8w8_fp8), fp8 (wfp8afp8; experts in block_wise_fp8), a8w8_fp8_wint4 (experts in 4 bits beside it), a8w8, w4a8 (experts in 4 bits, the other layers of such a model in a8w8), or FastDeploy's mix_quant as JSON."},
    {"quantization-config", kText, kSizes, "", "The same for each kind of layer, as JSON: {\"experts\": \"wint4\", \"dense\": \"wint8\", \"attention\": \"none\", \"head\": \"wint8\"}; changes what --quantization says."},
    {"runner", kChoice, kSizes, "auto", "generate: a model that continues text. pooling: one that makes a vector of it, for /v1/embeddings, /v1/score, /v1/rerank, /v1/classify and /v1/reward. auto: pooling where the checkpoint has no language head, or has a modules.json of sentence-transformers.", 0, 0, "auto|generate|pooling"},
    {"convert", kChoice, kSizes, "auto", "What a model that is pooled gives. embed: the row behind its last norm, whatever it was trained for. classify: the scores of its classes or, without such a head, of the tokens \"no\" and \"yes\", as Qwen3-Reranker. reward: the scores as they are. auto: classify for ...ForSequenceClassification, reward for ...ForRewardModel, else embed. none: only what the checkpoint itself was made for. All but auto and none choose --runner pooling.", 0, 0, "auto|none|embed|classify|reward"},
    {"task", kChoice, kSizes, "auto", "An older way to choose --runner and --convert: generate, pooling, or embed, classify, reward, score (which is classify) with pooling.", 0, 0, "auto|generate|pooling|embed|classify|reward|score"},
    {"override-pooler-config", kText, kSizes, "", "How a model is pooled, as JSON, against what its files say: pooling_type (LAST, CLS, MEAN), normalize, activation, is_matryoshka, matryoshka_dimensions. Without files: LAST, normalized."},
    {"use-cudagraph", kSwitch, kSizes, "true", "Record decode steps as CUDA graphs and replay them."},
    {"graph-optimization-config", kText, kSizes, "", "CUDA graph settings as JSON: use_cudagraph, and cudagraph_capture_sizes, the batch sizes to record; graph_opt_level has no effect."},
    {"fuse-single-row", kSwitch, kSizes, "true", "CUDA: while one sequence runs, fuse the operations between two attentions into one kernel. Its blocks wait for each other, so turn it off if other processes run kernels on the same GPU; under CUDA MPS it is off automatically. Models with experts never use it."},
    {"batch-invariant", kSwitch, kSizes, "false", "CUDA: the same request gives the same tokens, bit for bit, whatever else is in the batch and however its prompt is cut or found in the cache. Slower (docs/performance.md); needs a device of compute capability 9.0, and turns --fuse-single-row off. The CPU backend always computes so."},
    {"threads", kInt, kRuns | kQuantize, "0", "Threads of the CPU backend; 0: one per core that this process may use.", 0, 4096},
    {"tensor-parallel-size", kInt, kSizes, "1", "Ranks that the model is cut among, each with its part of the weights and of the KV cache: on the CPU threads of this process, which share --threads and the memory, or of the processes of --ips; on CUDA each on a device of its own, of one node or of those of --ips (docs/scale.md).", 1, 64, "", "tp"},
    {"enable-expert-parallel", kSwitch, kSizes, "false", "Each rank of --tensor-parallel-size, or each replica of --data-parallel-size, has some of a mixture's routed experts whole. Ranks else have a slice of each one's width, which then need not divide (docs/scale.md); replicas else have all experts, and keep all but these to themselves (docs/data_parallel.md). Without experts, or with one rank and one replica, it changes nothing and warns.", 0, 0, "", "ep"},
    {"data-parallel-size", kInt, kSizes, "1", "Replicas of the model in this process, behind one port (docs/data_parallel.md): each has its own scheduler and KV blocks, and --max-num-seqs and what follows it are said of each. CUDA: a device for each, or as many as --tensor-parallel-size says, in order. The CPU: they share the weights and divide --threads; with --enable-expert-parallel each has its own, and some of the experts.", 1, 128, "", "dp"},
    {"chat-template", kText, kTexts, "", "A chat template, or a file with one, that replaces the model's own."},
    {"seed", kInt, kRuns | kQuantize, "0", "Seed for requests that have none, and for dummy weights. serve: 0 means a new seed at each start; chat: a new seed for each answer unless given. bench serve: other prompts, and other gaps of --request-rate. quantize: which texts are held out, and what the model writes without --data.", 0, 9.2e18},
};

constexpr Flag kMemory[] = {
    {"max-model-len", kInt, kSizes, "0", "Most tokens of a prompt and its output together; 0: what the model supports, at most 32768.", 0, kMaxCount},
    {"max-num-seqs", kInt, kSizes, "", "Most sequences in one step. Default: 8 on the CPU; on a CUDA device as many as its memory holds 2,048 tokens of each for, from 8 to 256; chat: 1; bench latency, bench throughput: 8, or --batch-size if that is more.", 1, 65536},
    {"max-num-batched-tokens", kInt, kSizes, "0", "Most rows (tokens) in one step; longer prompts are split into chunks. 0: up to 8192.", 0, kMaxCount},
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

constexpr Flag kSpeculation[] = {
    {"speculative-config", kText, kSizes, "", "Speculative decoding (docs/speculation.md), as JSON: method (ngram, suffix, inference_with_reference, draft_model, mtp, eagle or eagle3), model (the folder of what drafts), num_speculative_tokens, max_ngram_size, min_ngram_size, suffix_decoding_max_tree_depth, suffix_decoding_max_spec_factor, quantization (of what drafts, as --quantization), num_model_steps, mtp_strategy, enable_draft_logprob, verify_strategy with max_candidate_len, verify_window, relaxed_topk and relaxed_delta; vLLM's prompt_lookup_max and prompt_lookup_min are known, too. Text and log-probabilities are the same with it and without, unless verify_strategy says otherwise."},
    {"speculative-method", kText, kSizes, "", "The same as its key method."},
    {"speculative-num-tokens", kInt, kSizes, "5", "The same as its key num_speculative_tokens: the most drafts of one sequence in one step; with method mtp 1, with eagle and eagle3 3 unless it is given. How many are checked follows from how many were kept and from what a step costs.", 1, 16, "", "num-speculative-tokens"},
    {"speculative-max-ngram-size", kInt, kSizes, "5", "The same as its key max_ngram_size: the most tokens that are looked up.", 1, 32},
    {"speculative-min-ngram-size", kInt, kSizes, "2", "The same as its key min_ngram_size: the fewest tokens that are looked up.", 1, 32},
    {"speculative-verify-strategy", kText, kSizes, "target_match", "The same as its key verify_strategy. target_match: a draft is kept if it is the token that the request's own draw gives. rejection keeps the distribution, greedy answers as with temperature 0, topp and relaxed change the distribution."},
};

constexpr Flag kSplitting[] = {
    {"splitwise-role", kChoice, kSizes, "mixed", "serve: what this server does of the two halves of a request (docs/disaggregation.md). prefill: computes prompts and hands their KV blocks out at --pd-comm-port. decode: fetches them there, computes what does not come, and generates. mixed: both halves, alone.", 0, 0, "mixed|prefill|decode"},
    {"pd-comm-port", kInt, kServe, "2334", "prefill: port at which blocks are handed out; 0: any free port, which is logged.", 0, 65535},
    {"pd-comm-host", kText, kServe, "127.0.0.1", "prefill: numeric address of that port. One that other machines reach needs --pd-comm-key-file."},
    {"pd-comm-key-file", kText, kServe, "", "A file whose first line is a secret that prefill and decode servers share. Without one they talk on this machine only."},
    {"pd-buffer-size", kFloat, kServe, "4", "prefill: host memory for blocks that may be fetched, in GB (2^30 bytes).", 0, 1 << 20},
    {"pd-lease", kFloat, kServe, "30", "prefill: seconds for which blocks are kept for a decode server that has gone silent.", 0.1, 86400},
    {"cache-transfer-protocol", kText, kSizes, "ipc,tcp", "serve: the ways that KV blocks may take, separated by commas. ipc: through memory that both servers have, where they are processes of one machine, network namespace and user, and both allow it. tcp: always there, and the way of all else. rdma, of FastDeploy, is not there: TCP is used instead, with a warning."},
    {"prefill-peers", kText, kServe, "", "decode: HOST:PORT of a prefill server's --pd-comm-port, which is asked to compute the prompts of requests that name none; may be repeated. Of several the one with the fewest prompts is asked.", 0, 0, "", "", Standing::kApplied, true},
    {"innode-prefill-ports", kText, kServe, "", "decode: the same for prefill servers on this machine: their ports, separated by commas."},
    {"pd-wait", kFloat, kServe, "20", "decode: longest time without a block, in seconds, before the rest of a prompt is computed here; at most a quarter of --watchdog-timeout.", 0.01, 86400},
};

constexpr Flag kServer[] = {
    {"host", kText, kServe | kRoute, "0.0.0.0", "Address to listen on."},
    {"port", kInt, kServe, "8000", "Port to listen on; 0: any free one. $SERVICE_HTTP_PORT, if set, replaces the default.", 0, 65535},
    {"grpc-port", kInt, kServe, "", "Port of the gRPC service (KServe v2 as Triton and PaddleNLP's server speak it; docs/api.md), with the host, keys, TLS files and limits of the main port; 0: any free one. Default: $SERVICE_GRPC_PORT, if set, else none.", 0, 65535},
    {"metrics-port", kInt, kServe, "", "Another port, with the host, keys and TLS files of the main one, that has /metrics, probes and /config-info and nothing else; 0: any free one. They are on the main port, too.", 0, 65535},
    {"ips", kText, kServe, "", "Addresses of all nodes in order, with commas, the same on each. With --data-parallel-size 1, --tensor-parallel-size counts the ranks on all of them, the first node serves, and the others compute for it (docs/scale.md); else --data-parallel-size counts the replicas on all of them, and each node runs its share behind its own port (docs/data_parallel.md). mpirun, LWS_GROUP_SIZE and PaddleNLP's POD_IPS are understood, too."},
    {"node-rank", kInt, kServe, "", "This node's place in --ips, from 0, where its own addresses do not tell: several nodes on one machine, or addresses that are translated.", 0, 1023},
    {"engine-worker-queue-port", kText, kSizes, "8002", "serve: port at the first address of --ips at which the nodes that share one model come together; 0 on the first node: any free port, which is logged. Elsewhere it has no effect."},
    {"node-key-file", kText, kServe, "", "A file whose first line is a secret that the nodes of one model share. Without one whoever reaches that port may join."},
    {"dist-timeout", kFloat, kServe, "600", "Longest time, in seconds, until all nodes of one model have come together.", 0.1, 604800},
    {"config", kText, kServe, "", "A YAML file with flags as keys, without dashes in front: max-model-len: 4096, lists for flags that may be repeated, true and false for switches, objects for those that take JSON; model: the folder. The command line wins over the file, the file over the environment (docs/operations.md)."},
    {"ports", kText, kServe, "", "A port for each replica of --data-parallel-size, with commas, in place of --port: what comes in at one is computed by its replica, and its /metrics are those of this replica (docs/data_parallel.md); 0: any free one."},
    {"metrics-ports", kText, kServe, "", "With --ports: a port for the metrics of each, as --metrics-port."},
    {"num-servers", kInt, kServe, "", "FastDeploy's multi_api_server has it; as many as --ports has.", 1, 1024},
    {"args", kSwitch, kServe, "false", "FastDeploy's multi_api_server has it ahead of the server's own flags; it changes nothing."},
    {"workers", kInt, kServe, "2", "Threads that parse requests and tokenize.", 1, 1024},
    {"max-concurrency", kInt, kServe, "512", "Most requests at a time; more are answered 429.", 1, 1e6},
    {"scheduling-policy", kChoice, kServices, "fcfs", "fcfs: requests are served in the order of arrival, and a priority other than 0 is refused. priority: a request's field priority counts, lower first; use it only if clients can be trusted with it.", 0, 0, "fcfs|priority"},
    {"max-waiting-tokens", kInt, kServe, "1000000", "Most prompt tokens that may wait for admission to the batch; further requests are answered 429. A request that finds the queue empty may always wait. 0: no limit.", 0, 1e12},
    {"max-waiting-time", kInt, kServices, "-1", "Seconds that a request may wait for admission; then it is answered 429. -1: no limit.", -1, 604800},
    {"request-timeout", kFloat, kServices, "0", "Seconds that a request may take from end to end; then it is answered 504. A request's field timeout may ask for less. 0: no limit.", 0, 604800},
    {"watchdog-timeout", kFloat, kServe, "300", "Seconds without a step, while requests wait, after which the process logs all stacks and exits with code 4. It must exceed the longest step. 0: never.", 0, 604800},
    {"max-logprobs", kInt, kServices, "20", "Most log-probabilities per position; -1: the whole vocabulary.", -1, kMaxCount},
    {"max-reply-logprobs", kInt, kServices, "4194304", "Most log-probabilities that the replies to one request may hold in memory: prompts x n x max_tokens x (logprobs + 1), plus those of prompts, once more than n; a request for more is answered 400. A stream counts only those of its prompt. 0: no limit.", 0, 1e12},
    {"enable-logprob", kSwitch, kServices, "true", "Log-probabilities are always available; =false refuses them."},
    {"logprobs-mode", kChoice, kServices, "raw_logprobs", "What is reported as log-probabilities of drawn tokens. raw_logprobs: those of the model. processed_logprobs: those from which the token was drawn, behind biases, penalties, bans, constraints and, unless the request is greedy, temperature, min_p, top_k and top_p; -9999 where these exclude a token. raw_logits, processed_logits: the logits of the same, before they are normalized. Prompts have raw log-probabilities always.", 0, 0, "raw_logprobs|processed_logprobs|raw_logits|processed_logits"},
    {"reasoning-parser", kText, kServices, "auto", "How the model writes its reasoning, by the names of FastDeploy, vLLM and SGLang (deepseek_r1, qwen3, ernie-x1, ...); an unknown name shows the list. auto: as its chat template says. none: reasoning stays part of the content."},
    {"reasoning-field", kChoice, kServe, "reasoning_content", "The field of chat messages that holds the reasoning: the older name, vLLM's newer one, or both.", 0, 0, "reasoning_content|reasoning|both"},
    {"tool-call-parser", kText, kServices, "auto", "How the model writes tool calls, by the names of FastDeploy, vLLM and SGLang (hermes, qwen3_coder, llama3_json, mistral, deepseek_v3, ...); an unknown name shows the list. auto: as its chat template says. none: calls stay part of the content."},
    {"enable-auto-tool-choice", kSwitch, kServices, "true", "Calls that the model makes of its own accord are reported as such; =false: they stay part of the content."},
    {"max-dec-len", kInt, kServe, "0", "PaddleNLP's protocol: most tokens of a reply, and as many as a request gets that does not say; 0: what the context leaves.", 0, kMaxCount},
    {"disable-streaming", kSwitch, kServe, "false", "PaddleNLP's protocol: streams have nothing but their last object, which holds the whole reply. Default: $DISABLE_STREAMING, if set."},
    {"timeout-graceful-shutdown", kInt, kServe | kRoute, "60", "Seconds that running requests get after SIGTERM; requests that still run then end with an error. A second signal ends the process within 1.2 s.", 0, 86400, "", "shutdown-timeout"},
    {"refuse-unknown-fields", kSwitch, kServices, "false", "Answer 400 to a request with unknown fields instead of ignoring them."},
    {"webui", kSwitch, kServe, "true", "Browsers get a page at / to chat with the model and to see the server's load; --no-webui: they get what other clients get there."},
    {"log-level", kChoice, kRuns | kRoute, "info", "Least severe messages that are logged to stderr.", 0, 0, "trace|debug|info|warning|error"},
    {"log-format", kChoice, kRuns | kRoute, "text", "json: each line of the log is an object with time, level and message.", 0, 0, "text|json"},
    {"access-log", kChoice, kServe | kRoute, "on", "Log one line for each request: client, method, path, status, bytes, duration, request id. It never contains text of users.", 0, 0, "on|off"},
    {"disable-access-log", kSwitch, kServe | kRoute, "false", "The same as --access-log off."},
    {"request-log", kText, kServe, "", "A file to which one JSON line is appended for each request (docs/operations.md): id, route, status, token counts, times, what constrained it. It holds no text. Opened again at SIGHUP."},
    {"otlp-traces-endpoint", kText, kServe, "", "Where spans of requests are sent, by OTLP over HTTP as JSON: http://collector:4318/v1/traces. They hold no text. Headers are read from $OTEL_EXPORTER_OTLP_HEADERS, the name of the service from $OTEL_SERVICE_NAME. Default: none are sent."},
    {"dynamic-load-weight", kSwitch, kServe, "false", "An operator may give the memory of weights and KV cache back, take it again, and replace the weights, while the server lives (docs/operations.md: /v1/sleep, /v1/wakeup, /v1/update_weights): of all ranks, all replicas and what drafts at once. Needs --admin-key or --admin-key-file.", 0, 0, "", "enable-sleep-mode"},
};

constexpr Flag kBackground[] = {
    {"pid-file", kText, kStart | kStop, "", "File that names the server's process. Default: log/skiff-PORT.pid."},
    {"log-file", kText, kStart, "", "File that the server's log is appended to. Default: log/skiff-PORT.log."},
    {"start-timeout", kFloat, kStart, "1800", "Seconds to wait until the server is ready; it goes on then, but the command fails.", 0, 1e6},
    {"port", kInt, kStop, "8000", "The server's port, which is part of the file's name. $SERVICE_HTTP_PORT, if set, replaces the default.", 0, 65535},
    {"timeout", kFloat, kStop, "300", "Seconds in which replies may be finished; what is left is cut off, and 15 seconds later the process is killed.", 0, 1e6},
};

constexpr Flag kSecurity[] = {
    {"api-key", kText, kServe | kRoute, "", "A key that clients must send (Authorization: Bearer KEY, or x-api-key: KEY); may be repeated, and any of them is accepted. Default: the comma-separated list in $FD_API_KEY, if set. Other users of this machine can read command lines: prefer --api-key-file.", 0, 0, "", "", Standing::kApplied, true},
    {"api-key-file", kText, kServe | kRoute, "", "A file with one key per line and # for comments. It is read again at SIGHUP."},
    {"admin-key", kText, kServe | kRoute, "", "A key of the operator's: it opens the control endpoints (docs/operations.md: pause, abort requests, ...) and nothing else. May be repeated. Default: there are no control endpoints. Prefer --admin-key-file, as for --api-key.", 0, 0, "", "", Standing::kApplied, true},
    {"admin-key-file", kText, kServe | kRoute, "", "A file with such keys, one per line and # for comments. It is read again at SIGHUP."},
    {"share-cache-between-keys", kSwitch, kServe, "false", "Several API keys share the prefix cache. The time to the first token then reveals to one key's owner how another's prompts begin. Default: each of several keys has its own part."},
    {"trust-request-chat-template", kSwitch, kServe, "false", "Requests may bring a chat template of their own (field chat_template). A template is a program, which the server runs within limits on time and memory. Default: such requests are refused."},
    {"ssl-certfile", kText, kServe | kRoute, "", "PEM file with the certificate and its chain: HTTPS instead of HTTP. Read again at SIGHUP."},
    {"ssl-keyfile", kText, kServe | kRoute, "", "PEM file with the certificate's private key, without a password. Read again at SIGHUP."},
    {"allowed-origins", kText, kServe | kRoute, "", "Origins whose web pages may call the server (CORS): https://chat.example.org, or * for all. May be repeated, or a JSON list as in [\"*\"]. Default: only the server's own origin; requests from other pages are answered 403.", 0, 0, "", "", Standing::kApplied, true},
    {"allowed-methods", kText, kServe | kRoute, "*", "Methods that such pages may use; repeated or a JSON list.", 0, 0, "", "", Standing::kApplied, true},
    {"allowed-headers", kText, kServe | kRoute, "*", "Headers that such pages may send; repeated or a JSON list.", 0, 0, "", "", Standing::kApplied, true},
    {"allow-credentials", kSwitch, kServe | kRoute, "false", "Such pages may send credentials such as cookies; not with --allowed-origins *."},
    {"allowed-hosts", kText, kServe | kRoute, "", "Names by which clients may call the server (the Host header), * for any; repeated or a JSON list. Default: any; with a loopback --host only the loopback names, so that web pages cannot reach the server by DNS rebinding.", 0, 0, "", "", Standing::kApplied, true},
    {"max-body-size", kInt, kServe | kRoute, "16777216", "Largest request body, in bytes; a larger one is answered 413.", 1024, 1 << 30},
    {"max-header-size", kInt, kServe | kRoute, "16384", "Largest request line and headers together, in bytes; larger ones are answered 431.", 1024, 1 << 20},
    {"max-connections", kInt, kServe | kRoute, "4096", "Most connections at a time. When all are in use, a new one replaces the one that has been idle longest.", 1, 1e6},
    {"header-timeout", kFloat, kServe | kRoute, "30", "Seconds that a request's headers, or a TLS handshake, may take.", 0.1, 86400},
    {"body-timeout", kFloat, kServe | kRoute, "120", "Seconds that a request's body may take. After 10 s it must also average 1 KiB/s.", 0.1, 86400},
    {"timeout-keep-alive", kFloat, kServe | kRoute, "180", "Seconds that an idle connection is kept open. Clients keep theirs for up to 120 s, so a smaller value makes them reuse closed connections.", 1, 86400, "", "keep-alive-timeout"},
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
    {"baseline", kSwitch, kBench, "false", "latency, throughput: measure without --speculative-config first, then with it."},
    {"rows", kText, kBench, "1,2,4,8,16..256:16,320..2048:64,3072,4096,8192", "steps: the numbers of rows to measure, as a list of numbers and of ranges such as 64..2048:64.", 0, 0},
    {"context", kInt, kBench, "1000", "steps: tokens before each row that decodes.", 1, kMaxCount},
    {"beside", kInt, kBench, "32", "steps: sequences that decode beside a prompt in the mixed steps.", 0, 16384},
    {"repetitions", kInt, kBench, "5", "steps: how often each step is timed; the middle time counts.", 1, 1e6},
    {"kinds", kText, kBench, "decode,prompt,mixed", "steps: the kinds of steps to measure, separated by commas: decode, prompt, mixed.", 0, 0},
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
    {"to", kText, kQuantize, "", "Format of the weights: w4a16, gptq, awq (4 bits), w8a16, a8w8 (8-bit integers), w4a8 (4-bit integers times 8-bit activations), fp8, fp8-block (8-bit floats).", 0, 0},
    {"out", kText, kQuantize, "", "Folder to write. It must not exist, or be empty; it appears when it is complete.", 0, 0},
    {"data", kText, kQuantize, "", "JSON lines to calibrate on and to measure with: {\"text\": ...}, {\"messages\": [...]} with or without \"answer\", or {\"ids\": [...]}. Default: texts that the model writes itself.", 0, 0},
    {"samples", kInt, kQuantize, "128", "Texts to calibrate on, at most.", 0, 1e6},
    {"eval-samples", kInt, kQuantize, "32", "Other texts, on which quality is measured, at most; 0: it is not.", 0, 1e6},
    {"sequence-length", kInt, kQuantize, "512", "Tokens of a text, at most; longer ones are cut in pieces, conversations at their end.", 2, 1 << 20},
    {"layout", kText, kQuantize, "", "How the tensors are stored: compressed-tensors, gptq, awq, or paddlenlp (--to a8w8 of Llama and Qwen2, with one static scale for the activations of a layer). Default: gptq and awq for --to of that name, else compressed-tensors.", 0, 0},
    {"group-size", kInt, kQuantize, "128", "4 bits: inputs that share a scale; -1: one scale for each output.", -1, 1 << 18},
    {"symmetric", kChoice, kQuantize, "auto", "4 bits: false stores a zero point beside each scale. auto: false for awq, else true.", 0, 0, "auto|true|false"},
    {"ignore", kText, kQuantize, "", "A layer that stays as it is, or what contains it (model.layers.0), or re: and a regular expression; may be repeated. lm_head, embeddings and routers always stay.", 0, 0, "", "", Standing::kApplied, true},
    {"kv-cache-dtype", kChoice, kQuantize, "auto", "fp8, int8: also store scales for the keys and values of such a cache, from the calibration texts.", 0, 0, "auto|fp8|int8"},
    {"clip-search", kSwitch, kQuantize, "true", "Integers: search the clipping of each scale. false: scales cover the largest weight, and those of static activations the largest input."},
    {"rounding", kChoice, kQuantize, "auto", "nearest, or gptq, where what follows makes up for each rounding error; awq, a8w8 and w4a8 take either. auto: gptq for --to gptq and awq, else nearest.", 0, 0, "auto|nearest|gptq"},
    {"shift", kSwitch, kQuantize, "false", "a8w8, w4a8: also subtract the middle of each channel of attention's values, in biases that the model has or gains, where that lowers the error of the output."},
    {"act-order", kSwitch, kQuantize, "true", "--rounding gptq: round the columns with the largest inputs first."},
    {"damping", kFloat, kQuantize, "0.01", "--rounding gptq: added to the diagonal of the inputs' second moments, as a fraction of its mean.", 1e-6, 1},
    {"min-expert-tokens", kInt, kQuantize, "64", "Experts that see fewer calibration tokens are rounded to nearest.", 0, kMaxCount},
    {"shard-size", kFloat, kQuantize, "5", "Largest size of one safetensors file, in GB.", 1e-6, 1 << 20},
};

constexpr Flag kRouting[] = {
    {"router", kText, kServe, "", "HOST:PORT of a router (skiff route, or FastDeploy's) with which the server registers every 5 s (docs/routing.md)."},
    {"router-key-file", kText, kServe, "", "A file whose first line is the router's --admin-key. Read again at each registration."},
    {"router-advertise", kText, kServe, "", "The address by which the router reaches this server. Default: --host, or where that stands for all addresses, the one from which this machine reaches the router."},
    {"port", kInt, kRoute, "9000", "Port to listen on; 0: any free one.", 0, 65535},
    {"backends", kText, kRoute, "", "Servers to pass requests on to, http://HOST:PORT or https://HOST:PORT, separated by commas; may be repeated. More may register (POST /register).", 0, 0, "", "", Standing::kApplied, true},
    {"policy", kText, kRoute, "prefix", "Which server gets a request: prefix (one that has seen the prompt's beginning, unless it has too much to do), or one of FastDeploy's: cache_aware, random, round_robin, power_of_two, process_tokens, request_num, fd_metrics_score."},
    {"splitwise", kSwitch, kRoute, "false", "Pairs of servers instead of whole ones: each request goes to a prefill and a decode server at once (docs/routing.md). They register; --backends is refused, and --policy has no effect: see --prefill-policy and --decode-policy."},
    {"prefill-policy", kText, kRoute, "process_tokens", "--splitwise: which prefill server gets a request; as --policy."},
    {"decode-policy", kText, kRoute, "request_num", "--splitwise: which decode server gets it."},
    {"backend-ca-file", kText, kRoute, "", "A PEM file with the certificates that servers with https:// are trusted by; it may hold a server's own. Default: the system's."},
    {"backend-admin-key-file", kText, kRoute, "", "A file whose first line is the admin key that the router sends to servers with what an operator tells all of them (POST /v1/abort_requests), in place of the operator's own."},
    {"backend-key-file", kText, kRoute, "", "A file whose first line is the API key that the router sends to servers in place of its clients' keys. Default: clients' keys are passed on."},
    {"open-registration", kSwitch, kRoute, "false", "Without --admin-key: everybody who reaches the port may register a server, and so read requests. Default: nobody may, unless --host is a loopback address."},
    {"max-concurrency", kInt, kRoute, "4096", "Most requests at a time; more are answered 429.", 1, 1e6},
    {"max-retries", kInt, kRoute, "2", "Other servers that a request is sent to when one takes no connection or answers 503.", 0, 100},
    {"connect-timeout", kFloat, kRoute, "2", "Seconds in which a server must take a connection.", 0.01, 3600},
    {"request-timeout-secs", kFloat, kRoute, "1800", "Seconds that a request may take from end to end; 0: no limit.", 0, 604800},
    {"stall-timeout-secs", kFloat, kRoute, "30", "Seconds of silence after which the answer of a server that answers no probes is given up; 0: never.", 0, 604800},
    {"health-check-interval-secs", kFloat, kRoute, "5", "Seconds between two probes of a server's /health.", 0.01, 86400},
    {"health-check-timeout-secs", kFloat, kRoute, "5", "Seconds that such a probe may take.", 0.01, 3600},
    {"health-failure-threshold", kInt, kRoute, "3", "Probes that must fail in a row until a server gets no more requests; refused connections count, too.", 1, 1000},
    {"health-success-threshold", kInt, kRoute, "2", "Probes that must succeed in a row until it gets them again.", 1, 1000},
    {"hit-ratio-weight", kFloat, kRoute, "1", "cache_aware: weight of the part of a prompt that is not cached.", 0, 1e6},
    {"load-balance-weight", kFloat, kRoute, "0.05", "cache_aware: weight of the requests under way beside the most of any server.", 0, 1e6},
    {"balance-abs-threshold", kInt, kRoute, "1", "cache_aware: where requests under way differ by more than this and --balance-rel-threshold, the fewest prompt tokens decide.", 0, 1e6},
    {"balance-rel-threshold", kFloat, kRoute, "0.2", "cache_aware: the same as a part of the most requests of any server.", 0, 1},
    {"max-imbalance", kFloat, kRoute, "1.5", "prefix: a server may have this many times the mean load, and four requests more, before prompts whose beginning it has seen go elsewhere.", 1, 1e6},
    {"max-prefix-blocks", kInt, kRoute, "65536", "Blocks of 256 bytes of prompts that are remembered of each server; about 100 bytes of memory each.", 1, 1 << 24},
    {"drain-delay", kFloat, kRoute, "0", "Seconds after SIGTERM in which /ready answers 503 and requests are still taken, so that load balancers notice.", 0, 3600},
};

// Flags of FastDeploy whose features are not implemented yet.
constexpr unsigned kAll = kSizes;
constexpr Standing kNotYet = Standing::kLater;
constexpr Flag kLaterFlags[] = {
    {"local-data-parallel-id", kInt, kAll, "0", "Rank among data-parallel engines.", 0, 1024, "", "", kNotYet},
    {"enable-eplb", kSwitch, kAll, "false", "Balance experts with copies.", 0, 0, "", "", kNotYet},
    {"eplb-config", kText, kAll, "", "Settings of expert balancing (JSON).", 0, 0, "", "", kNotYet},
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
    {"load-strategy", kText, kServe, "normal", "How new weights are loaded.", 0, 0, "", "", kNotYet},
    {"rsync-config", kText, kServe, "", "Transfer of weights from other machines (JSON).", 0, 0, "", "", kNotYet},
    {"plas-attention-config", kText, kAll, "", "Sparse attention (JSON).", 0, 0, "", "", kNotYet},
    {"routing-replay-config", kText, kAll, "", "Record expert routing (JSON).", 0, 0, "", "", kNotYet},
    {"enable-chunked-moe", kSwitch, kAll, "false", "Split the input of MoE layers.", 0, 0, "", "", kNotYet},
    {"chunked-moe-size", kInt, kAll, "256", "Rows of one such piece.", 1, kMaxCount, "", "", kNotYet},
    {"benchmark-metrics-config", kText, kServe, "", "Rolling benchmark log (JSON).", 0, 0, "", "", kNotYet},
};

// clang-format on

}  // namespace

std::span<const FlagGroup> flag_groups() {
  static const FlagGroup kGroups[] = {
      {"Model", kModel},
      {"Memory and scheduling", kMemory},
      {"What the scheduler prefers", scheduler_rows()},
      {"Speculative decoding", kSpeculation},
      {"Server", kServer},
      {"Prefill and decode apart", kSplitting},
      {"In the background", kBackground},
      {"Security and limits", kSecurity},
      {"Requests shared through Redis", queue_rows()},
      {"Ranks, replicas and nodes by vLLM's names", vllm_node_rows()},
      {"Routing", kRouting},
      {"Prompts and generation", kGenerate},
      {"Tokens", kTokens},
      {"Structured output", kConstraints},
      {"Quantizing", kQuantizing},
      {"Within another process (python.md)", kInProcess},
      {"Download", kDownloads},
      {"Benchmarks", kBenchmarks},
      {"Known, not implemented yet (one warning)", kLaterFlags},
      {"Known, without effect in Skiff (one warning)", rows_without_effect()},
  };
  return kGroups;
}

}  // namespace skiff::apps
