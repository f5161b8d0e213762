# The parts of bench/run_cuda.sh, which sources this file. Each function measures or checks one thing and reports it.
# Uses $models, $build, $out (a folder for files of one part), say, failed, must and program of run_cuda.sh.

llama=Llama-3.1-8B qwen=Qwen2.5-7B ernie=ERNIE-4.5-21B-A3B-PT
dummy=(--load-format dummy --dtype bfloat16)

# latency MODEL BATCH [flags]
latency() {
  local command=(bench latency "$models/$1" "${dummy[@]}" --input-len 1024 --output-len 128
    --max-model-len 16384 --batch-size "$2" "${@:3}")
  say "skiff ${command[*]}"
  must timeout 120 "$(program skiff)" "${command[@]}" > "$out/log" 2>&1
  grep -E 'start-up took|checked|time to first|^decode|^host|of the limit|error|profile|idle|x +[0-9.]+ us' "$out/log"
}

# serving MODEL REQUESTS CONCURRENCY INPUT OUTPUT
serving() {
  local flags=("${dummy[@]}" --max-num-seqs "$3" --no-enable-prefix-caching)
  local load=(--num-prompts "$2" --concurrency "$3" --input-len "$4" --output-len "$5")
  say "skiff serve $1 ${flags[*]}; skiff bench serve ${load[*]}"
  "$(program skiff)" serve "$models/$1" "${flags[@]}" --port "$port" > "$out/server" 2>&1 &
  local server=$! url=http://127.0.0.1:$port try
  for try in $(seq 600); do curl -sf -o /dev/null "$url/health" && break; sleep 0.1; done
  grep 'start-up took' "$out/server"
  for try in 1 2 3; do
    "$(program skiff)" bench serve --url "$url" --num-prompts 1 --concurrency 1 --input-len 1000 --output-len 2 2>&1 |
      grep 'time to first'
  done
  must timeout 400 "$(program skiff)" bench serve --url "$url" "${load[@]}" 2>&1 | grep -v '^$'
  kill $server; wait $server
}

# answers DEVICE DTYPE FILE [flags]: writes the demo model's answers to its held-out questions.
answers() {
  must timeout 120 "$(program skiff)" predict models/demo --data-file "$out/prompts" --dtype "$2" --device "$1" \
    --max-num-seqs 64 --output-file "$3" "${@:4}" > "$out/log" 2>&1
}
# same_answers MOST DTYPE [flags]: compares CPU and GPU; at most MOST of a hundred answers may differ.
same_answers() {
  say "skiff predict models/demo --dtype $2 ${*:3}, CPU against GPU"
  answers cpu "$2" "$out/cpu" "${@:3}"
  answers cuda "$2" "$out/cuda" "${@:3}"
  local total differ
  total=$(wc -l < "$out/cpu") differ=$(diff "$out/cpu" "$out/cuda" | grep -c '^<')
  echo "$differ of $total answers differ; at most $1 in 100 may"
  must test "$total" -gt 0 && must test $((100 * differ)) -le $(($1 * total))
}

# float32 runs the plain kernels only and must give the CPU's answers. bfloat16 runs the fast ones, whose sums round
# differently from the CPU's, so that near ties of the small model are decided differently in some answers.
demo_answers() {
  cp tools/demo_model/*.py "$out" && (cd "$out" && python3 corpus.py --heldout)
  python3 -c 'import json, sys
for line in sys.stdin: print(json.dumps({"messages": json.loads(line)["messages"]}))' \
    < "$out/heldout.jsonl" > "$out/prompts"
  same_answers 0 float32 --temperature 0
  same_answers 0 float32 --temperature 0.8 --top-p 0.9 --seed 7 --repetition-penalty 1.1
  same_answers 1 bfloat16 --temperature 0
}
checks() {
  say "ops_test, model_test on the GPU"
  must timeout 240 "$(program ops_test)" --gtest_filter='*cuda*:OpTuning*' --gtest_brief=1 2>&1 | tail -3
  must timeout 120 "$(program model_test)" --gtest_filter='*cuda*:*Cuda*:*Stories*' --gtest_brief=1 2>&1 | tail -3
  demo_answers
}
memcheck() { must bench/check_cuda.sh "$(program ops_test)" memcheck; }
racecheck() { must bench/check_cuda.sh "$(program ops_test)" racecheck; }

decode() {
  latency $llama 1; latency $llama 128; latency $qwen 128
  latency $ernie 1; latency $ernie 32; latency $ernie 128
}
prefill() { latency $llama 1 --input-len 8192 --output-len 8; latency $ernie 1 --input-len 8192 --output-len 8; }

profile() {
  local tracer=$build/profile.so
  [ -f "$tracer" ] || must g++ -std=c++20 -O2 -fPIC -shared bench/cuda_profile/profile.cc -I/usr/local/cuda/include \
    -L/usr/local/cuda/lib64 -lcupti -o "$tracer" || return
  export CUDA_INJECTION64_PATH=$tracer SKIFF_PROFILE_SECONDS=0.2 SKIFF_PROFILE_AROUND=store_tokens
  latency $llama 128; latency $ernie 1
  unset CUDA_INJECTION64_PATH SKIFF_PROFILE_SECONDS SKIFF_PROFILE_AROUND
}

# Each program first checks everything that it will time against the formula, reports how much it checked, and does
# not time what is wrong.
kernels() {
  local p
  for p in "bench_attention all" bench_mla bench_sampling bench_linear bench_moe bench_mixture_steps bench_stores bench_expert_rows bench_one_row; do
    say "$p"
    must timeout 180 "$(program "${p%% *}")" ${p#"${p%% *}"} > "$out/log" 2>&1
    grep -v '^ok ' "$out/log"
    grep -qE 'checked|failures' "$out/log" || failed "$p does not say that it checked anything"
  done
}
serve() { serving $ernie 2000 100 1136 200; serving $llama "${LLAMA_REQUESTS:-512}" 128 1000 1000; }
load() {
  say "16 GB of files from the page cache: bench/make_weights.py Llama-3.1-8B; skiff bench latency"
  must python3 bench/make_weights.py "$models/$llama/config.json" "$out/files" --shards 4 &&
    cat "$out"/files/*.safetensors > /dev/null
  must timeout 120 "$(program skiff)" bench latency "$out/files" --dtype bfloat16 --input-len 64 --output-len 16 2>&1 |
    grep -E 'start-up took|error'
}
