#!/usr/bin/env bash
# Skiff's server and vLLM's, one after the other, under the same requests from the same client, and one table of both.
#   bench/peers/vllm/serve.sh OUT MODEL LOAD...
# OUT gets logs and the figures as JSON. MODEL: folder with config.json and tokenizer; without *.safetensors both servers
# make dummy weights. LOAD: requests per second (12: Poisson arrivals), or a factor at which TRACE is replayed (4x).
#
#   SKIFF=build/cuda/skiff        SKIFF_FLAGS  more flags of `skiff serve`
#   PEER=vllm                     none: Skiff alone
#   VLLM="python3 -m vllm.entrypoints.openai.api_server"           VLLM_FLAGS  more flags of it
#   INPUT=1000 OUTPUT=200         tokens of a request             SECONDS_OF_LOAD=40  requests are sent for so long
#   TRACE=FILE                    Azure CSV                       SECONDS_OF_TRACE=60
#   PROMPT_VOCAB=100000           prompts are token ids below it  MAX_LEN=16384 MAX_SEQS=256 DTYPE=bfloat16
#   BUDGET=100000                 no load begins after so many seconds   PORT=8300
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 3 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && realpath "$1") model=$(realpath "$2"); shift 2
skiff=${SKIFF:-build/cuda/skiff} port=${PORT:-8300} name=$(basename "$model")
url=http://127.0.0.1:$port server=
trap 'stop' EXIT
say() { printf '[%3d s] %s\n' "$SECONDS" "$*"; }

stop() {
  [ -n "$server" ] || return
  kill -TERM -- "-$server" 2> /dev/null
  for _ in $(seq 100); do kill -0 -- "-$server" 2> /dev/null || break; sleep 0.2; done
  kill -KILL -- "-$server" 2> /dev/null
  wait "$server" 2> /dev/null
  server=
}

# start ENGINE COMMAND...: in a process group of its own; waits until it answers.
start() {
  local began=$SECONDS log=$out/$name.$1.server.log
  say "$*"
  setsid "${@:2}" > "$log" 2>&1 &
  server=$!
  until curl -sf -o /dev/null "$url/health"; do
    kill -0 "$server" 2> /dev/null || { say "$1 ended:"; tail -25 "$log"; server=; return 1; }
    [ $((SECONDS - began)) -lt 300 ] || { say "$1 is not ready after 300 s:"; tail -25 "$log"; return 1; }
    sleep 0.25
  done
  say "$1 is ready after $((SECONDS - began)) s"
}

client() { timeout 300 "$skiff" bench serve --url "$url" --served-model-name default --prompt-vocab "${PROMPT_VOCAB:-100000}" "$@"; }

# Prompts of several lengths, many at a time, so that nothing is compiled or chosen while it is timed.
warm_up() {
  client --num-prompts 96 --concurrency 48 --input-len "${INPUT:-1000}" --output-len 32 > "$out/$name.$1.warm-up.txt" 2>&1
  client --num-prompts 6 --concurrency 3 --input-len $((${MAX_LEN:-16384} / 4)) --output-len 8 >> "$out/$name.$1.warm-up.txt" 2>&1
}

# Requests of the trace that come within so many seconds of it.
within() {
  awk -F, -v most="$1" 'NR > 1 { split($1, t, /[ :]/); at = t[2] * 3600 + t[3] * 60 + t[4]; if (NR == 2) start = at
    if (at - start <= most) n++ } END { print n }' "$TRACE"
}

# load ENGINE LOAD
load() {
  local engine=$1 file=$out/$name.$1.$2.json count
  [ "$SECONDS" -lt "${BUDGET:-100000}" ] || { say "$2: no time is left for it"; return; }
  if [[ $2 == *x ]]; then
    count=$(within "$(awk -v s="${SECONDS_OF_TRACE:-60}" -v x="${2%x}" 'BEGIN { print s * x }')")
    set -- --trace "$TRACE" --trace-speed "${2%x}" --num-prompts "$count"
  else
    count=$(awk -v s="${SECONDS_OF_LOAD:-40}" -v r="$2" 'BEGIN { n = int(s * r); print (n < 8 ? 8 : n) }')
    set -- --request-rate "$2" --num-prompts "$count" --input-len "${INPUT:-1000}" --output-len "${OUTPUT:-200}"
  fi
  client --json "$@" > "$file" 2> "$file.err" || { say "the client failed:"; tail -3 "$file.err"; failed=1; }
  say "$engine $*"
}

# run ENGINE COMMAND...: all loads on one server.
run() {
  start "$@" || { stop; return 1; }
  # The first tokens of some prompts. With the same weights both engines say the same but for near ties.
  python3 "$here/first_tokens.py" "$url" "$out/$name.$1.tokens.json" "${PROMPT_VOCAB:-100000}"
  warm_up "$1"
  local each
  for each in "${loads[@]}"; do load "$1" "$each"; done
  stop
}

loads=("$@") failed=0 dummy=()
ls "$model"/*.safetensors > /dev/null 2>&1 || dummy=(--load-format dummy)
common=(--dtype "${DTYPE:-bfloat16}" --max-model-len "${MAX_LEN:-16384}" --max-num-seqs "${MAX_SEQS:-256}"
  --no-enable-prefix-caching --served-model-name default --port "$port" "${dummy[@]}")
say "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -1), $(nproc) cores; $("$skiff" --version 2>&1 | head -1)"
# shellcheck disable=SC2086  # the flags are words
run skiff "$skiff" serve "$model" "${common[@]}" --max-concurrency 8192 ${SKIFF_FLAGS:-} || failed=1
if [ "${PEER:-vllm}" = vllm ]; then
  export VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
  # shellcheck disable=SC2086
  run vllm ${VLLM:-python3 -m vllm.entrypoints.openai.api_server} --model "$model" "${common[@]}" ${VLLM_FLAGS:-} || failed=1
fi
python3 "$here/table.py" served "$out" "$name" "${loads[@]}" | tee "$out/$name.served.md"
exit "$failed"
