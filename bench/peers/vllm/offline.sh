#!/usr/bin/env bash
# `skiff bench latency` and the same on vLLM, one after the other, and one table of both.
#   bench/peers/vllm/offline.sh OUT MODEL
# OUT gets the logs. MODEL: folder with config.json; without *.safetensors both engines make dummy weights.
#
#   SKIFF=build/cuda/skiff   PEER=vllm (none: Skiff alone)   VLLM_PYTHON=python3, which imports vllm
#   BATCHES="1 32 128"       INPUT=1024 OUTPUT=128 PROMPT=8192 (vLLM's are fixed at these)
#   BUDGET=100000            vLLM begins no figure after so many seconds of its own
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && realpath "$1") model=$(realpath "$2") name=$(basename "$2")
skiff=${SKIFF:-build/cuda/skiff} failed=0 format=auto
read -ra batches <<< "${BATCHES:-1 32 128}"
ls "$model"/*.safetensors > /dev/null 2>&1 || format=dummy
say() { printf '[%3d s] %s\n' "$SECONDS" "$*"; }

# latency WHAT flags...
latency() {
  timeout 200 "$skiff" bench latency "$model" --load-format $format --dtype bfloat16 "${@:2}" > "$out/$name.skiff.$1.log" 2>&1 ||
    { say "skiff failed:"; tail -3 "$out/$name.skiff.$1.log"; failed=1; }
  say "skiff ${*:2}"
}

latency prompt --batch-size 1 --input-len "${PROMPT:-8192}" --output-len 8
for batch in "${batches[@]}"; do
  latency "$batch" --batch-size "$batch" --input-len "${INPUT:-1024}" --output-len "${OUTPUT:-128}"
done
if [ "${PEER:-vllm}" = vllm ]; then
  timeout $((${BUDGET:-100000} + 60)) "${VLLM_PYTHON:-python3}" "$here/latency.py" "$model" --load-format $format \
    --batches "$(IFS=,; echo "${batches[*]}")" --budget "${BUDGET:-100000}" \
    > "$out/$name.vllm.jsonl" 2> "$out/$name.vllm.log" || { say "vLLM failed:"; tail -15 "$out/$name.vllm.log"; failed=1; }
  say "vLLM"
fi
python3 "$here/table.py" offline "$out" "$name" "${batches[@]}" | tee "$out/$name.offline.md"
exit "$failed"
