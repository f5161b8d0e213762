#!/usr/bin/env bash
# All CUDA figures of docs/performance.md, on this machine's first GPU, now: checks first, then times.
#   bench/run_cuda.sh MODELS [PART ...] | tee bench/results/<machine>/$(date +%F)-all.txt
# MODELS holds folders Llama-3.1-8B, Qwen2.5-7B and ERNIE-4.5-21B-A3B-PT with config.json and the tokenizer;
# weights are random. Parts: checks memcheck racecheck decode prefill profile kernels serve load (default: all).
# BUILD: folder with the programs (build/cuda); missing ones are built, old ones are taken as they are. LLAMA_REQUESTS: how many of them (512). RACE_SECONDS, RACE_FILTER: how long and which cases racecheck takes (600, all).
set -uo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,6s/^# *//p' "$0" >&2; exit 2; }
nvidia-smi -L > /dev/null || { echo "no NVIDIA GPU answers: nothing would be measured" >&2; exit 2; }
models=$(realpath "$1"); shift
parts=${*:-checks memcheck racecheck decode prefill profile kernels serve load}
build=${BUILD:-build/cuda} port=${PORT:-8123} out=$(mktemp -d)
trap 'rm -rf "$out"; kill $(jobs -p) 2>/dev/null' EXIT
llama=Llama-3.1-8B qwen=Qwen2.5-7B ernie=ERNIE-4.5-21B-A3B-PT
dummy="--load-format dummy --dtype bfloat16"

say() { printf '\n## [%s s] %s\n' "$SECONDS" "$*"; }
# In a file, for half of it runs in pipes.
failed() { echo "FAILED: $*"; touch "$out/failed"; }
must() { "$@" || failed "$*"; }
program() { local p; for p in "$build/$1" "$build/src/$1" "$build/bench/$1"; do [ -f "$p" ] && echo "$p" && return; done
            cmake --build "$build" --target "$1" >/dev/null && program "$1"; }

# latency MODEL BATCH [flags]
latency() {
  say "skiff bench latency $1 $dummy --input-len 1024 --output-len 128 --max-model-len 16384 --batch-size $2 ${*:3}"
  must timeout 120 "$(program skiff)" bench latency "$models/$1" $dummy --input-len 1024 --output-len 128 --max-model-len 16384 \
    --batch-size "$2" "${@:3}" > "$out/log" 2>&1
  grep -E 'start-up took|checked|time to first|^decode|^host|of the limit|error|profile|idle|x +[0-9.]+ us' "$out/log"
}
# The test program's cases on the GPU, each in a process of its own under a tool that slows it; as many at a time as there are cores,
# those that take longest without the tool first.
each_case() { # TOOL SECONDS FILTER [flags]
  say "compute-sanitizer --tool $1 ${*:4}, op suite, $3, one process a case"
  local cases=$out/cases logs=$out/$1 test; test=$(program ops_test); mkdir -p "$logs"
  must timeout 120 "$test" --gtest_filter="$3" 2>&1 | sed -nE 's/^\[       OK \] ([^ ,]*).* \(([0-9]+) ms\)$/\2 \1/p' | sort -rn | cut -d' ' -f2 > "$cases"
  export -f one_case; timeout "$2" xargs -a "$cases" -P "$(nproc)" -I{} bash -c 'one_case "$@"' _ {} "$logs" "$test" --tool "$1" "${@:4}"
  local clean; clean=$(cat "$logs"/* | grep -cE '^clean ')
  echo "$clean of $(wc -l < "$cases") cases passed and are clean; of the others:"
  must test "$clean" = "$(wc -l < "$cases")"
  grep -hvE '^clean ' "$logs"/* | head -40
  sed -nE 's/^clean (.*)/\1/p' "$logs"/* | sort -rn | head -5
}
# Kernels called nvjet are the library's: racecheck reports races inside them, which are not ours to judge (and without looking at
# them it fails over them). Draws repeat the same kernels by the thousand: their first 200 launches are looked at.
one_case() { # NAME LOGS TEST FLAGS
  local log="$2/${1//\//_}" begin=$SECONDS all ours
  echo "cut off: $1" > "$log"
  local limit=()
  [[ $1 == *Sample* && $* == *racecheck* ]] && limit=(--launch-count 200)
  all=$(compute-sanitizer --print-limit 100000 "${limit[@]}" "${@:4}" "$3" --gtest_filter="$1" 2>&1)
  ours=$(grep -E '^========= .*(Error|Warning)' <<< "$all" | grep -v 'Race reported between .* access at nvjet')
  if grep -q '^\[  PASSED  \] 1 ' <<< "$all" && { grep -q 'SUMMARY: 0' <<< "$all" || { grep -q 'RACECHECK SUMMARY' <<< "$all" && [ -z "$ours" ]; }; }
  then echo "clean $((SECONDS - begin)) s $1"; else echo "NOT CLEAN: $1"; grep '^=====' <<< "$all" | grep -v nvjet | head -8; fi > "$log"
}
# serving MODEL REQUESTS CONCURRENCY INPUT OUTPUT
serving() {
  say "skiff serve $1 $dummy --max-num-seqs $3 --no-enable-prefix-caching; skiff bench serve --num-prompts $2 --concurrency $3 --input-len $4 --output-len $5"
  "$(program skiff)" serve "$models/$1" $dummy --port "$port" --max-num-seqs "$3" --no-enable-prefix-caching > "$out/server" 2>&1 &
  local server=$! url=http://127.0.0.1:$port try
  for try in $(seq 600); do curl -sf -o /dev/null "$url/health" && break; sleep 0.1; done
  grep 'start-up took' "$out/server"
  for try in 1 2 3; do
    "$(program skiff)" bench serve --url "$url" --num-prompts 1 --concurrency 1 --input-len 1000 --output-len 2 2>&1 | grep 'time to first'
  done
  must timeout 400 "$(program skiff)" bench serve --url "$url" --num-prompts "$2" --concurrency "$3" --input-len "$4" --output-len "$5" 2>&1 | grep -v '^$'
  kill $server; wait $server
}

checks() {
  say "ops_test, model_test on the GPU"
  must timeout 120 "$(program ops_test)" --gtest_filter='*cuda*' --gtest_brief=1 2>&1 | tail -3
  must timeout 120 "$(program model_test)" --gtest_filter='*cuda*:*Cuda*:*Stories*' --gtest_brief=1 2>&1 | tail -3
  local how device
  cp tools/demo_model/*.py "$out" && (cd "$out" && python3 corpus.py --heldout)
  python3 -c 'import json, sys
for line in sys.stdin: print(json.dumps({"messages": json.loads(line)["messages"]}))' < "$out/heldout.jsonl" > "$out/prompts"
  for how in '--temperature 0' '--temperature 0.8 --top-p 0.9 --seed 7 --repetition-penalty 1.1'; do
    say "skiff predict models/demo --dtype float32 $how, CPU against GPU"
    for device in cpu cuda; do
      must timeout 120 "$(program skiff)" predict models/demo --data-file "$out/prompts" --dtype float32 --device $device --max-num-seqs 64 \
        --output-file "$out/$device" $how > "$out/log" 2>&1
    done
    local differ; differ=$(diff "$out/cpu" "$out/cuda" | grep -c '^<')
    echo "$differ of $(wc -l < "$out/cpu") answers differ"
    must test "$differ" = 0
  done
}
memcheck() { each_case memcheck 200 '*cuda*'; }
racecheck() { each_case racecheck "${RACE_SECONDS:-600}" "${RACE_FILTER:-*cuda*}" --kernel-name kns=skiff --kernel-name kns=nvjet; }
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
kernels() {
  local p
  for p in "bench_attention decode" "bench_attention prefill" bench_cuda_sampling bench_linear_products bench_moe_products bench_one_row; do
    say "$p"; must timeout 120 "$(program ${p%% *})" ${p#"${p%% *}"} 2>&1 | grep -v '^ok '
  done
}
serve() { serving $ernie 2000 100 1136 200; serving $llama "${LLAMA_REQUESTS:-512}" 128 1000 1000; }
load() {
  say "16 GB of files from the page cache: bench/make_weights.py Llama-3.1-8B; skiff bench latency"
  must python3 bench/make_weights.py "$models/$llama/config.json" "$out/files" --shards 4 && cat "$out"/files/*.safetensors > /dev/null
  must timeout 120 "$(program skiff)" bench latency "$out/files" --dtype bfloat16 --input-len 64 --output-len 16 2>&1 | grep -E 'start-up took|error'
}

echo "# $(date +%F), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1), $(nproc) cores, commit ${COMMIT:-$(git rev-parse --short HEAD)}"
for part in $parts; do
  case " checks memcheck racecheck decode prefill profile kernels serve load " in *" $part "*) $part ;; *) failed "there is no part \"$part\"" ;; esac
done
[ -e "$out/failed" ] && { say 'something FAILED: see above'; exit 1; }
say 'all ran'
