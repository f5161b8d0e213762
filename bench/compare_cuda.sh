#!/usr/bin/env bash
# Measures decode rows of docs/performance.md with two skiff programs in turn (A B A B) on one machine, in one run:
#   bench/compare_cuda.sh OLD NEW CONFIGS [ROW ...]
# OLD and NEW: programs built with the cuda preset. CONFIGS: folder with Llama-3.1-8B, Qwen2.5-7B and
# ERNIE-4.5-21B-A3B-PT, each with config.json; weights are random. A row is MODEL:BATCH[:INPUT:OUTPUT].
# Where there are several GPUs, rows are spread over them; both programs meet a row on the same GPU.
# ROUNDS: how often each program measures a row (2).
set -uo pipefail
[ $# -ge 3 ] || { sed -n '2,7s/^# *//p' "$0" >&2; exit 2; }
nvidia-smi -L > /dev/null || { echo "no NVIDIA GPU answers: nothing would be measured" >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2") configs=$(realpath "$3"); shift 3
llama=Llama-3.1-8B qwen=Qwen2.5-7B ernie=ERNIE-4.5-21B-A3B-PT
[ $# -gt 0 ] || set -- $llama:1 $llama:32 $llama:128 $qwen:1 $qwen:128 $ernie:1 $ernie:32 $ernie:128 \
  $llama:1:8192:8 $ernie:1:8192:8
rows=("$@") rounds=${ROUNDS:-2} gpus=$(nvidia-smi -L | wc -l) out=$(mktemp -d)
trap 'rm -rf "$out"; kill $(jobs -p) 2>/dev/null' EXIT

# one ROW PROGRAM LOG: prints "milliseconds-per-decode-step milliseconds-to-first-token"; "- -" if it failed.
one() {
  local model batch input output
  IFS=: read -r model batch input output <<< "$1"
  if ! timeout 120 "$2" bench latency "$configs/$model" --load-format dummy --dtype bfloat16 --max-model-len 16384 \
    --batch-size "$batch" --input-len "${input:-1024}" --output-len "${output:-128}" > "$3" 2>&1
  then echo "- -"; return; fi
  awk '/^time to first/ {first = $4} /^decode/ {step = $2} END {print (step ? step : "-"), (first ? first : "-")}' "$3"
}

# rows_of GPU: measures the rows of this GPU with each program in turn.
rows_of() {
  export CUDA_VISIBLE_DEVICES=$1
  local i round which
  for ((i = $1; i < ${#rows[@]}; i += gpus)); do
    for ((round = 1; round <= rounds; ++round)); do
      for which in old new; do
        one "${rows[i]}" "${!which}" "$out/log-$i-$which-$round" > "$out/row-$i-$which-$round"
      done
    done
  done
}

# best ROW-NUMBER PROGRAM COLUMN: prints the least of its rounds; "-" if one failed.
best() {
  cat "$out/row-$1-$2-"* |
    awk -v c="$3" '$c == "-" {bad = 1} NR == 1 || $c < m {m = $c} END {print (bad ? "-" : m)}'
}
each() { cat "$out/row-$1-$2-"* | awk -v c="$3" '{printf "%s%s", (NR > 1 ? "/" : ""), $c}'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {if (a == "-" || b == "-") print "-"; else printf "%.3f", b / a}'; }

echo "# $(date +%F), $gpus x $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"
echo "# old: $("$old" --version 2>&1 | head -1); new: $("$new" --version 2>&1 | head -1)"
echo "# milliseconds of each round, old and new in turn; ratio: the best of new over the best of old"
for ((gpu = 0; gpu < gpus; ++gpu)); do rows_of "$gpu" & done
wait
failed=0
printf '%-34s %-22s %-22s %-7s %-22s %-22s %s\n' row 'decode step, old' new ratio 'first token, old' new ratio
for i in "${!rows[@]}"; do
  printf '%-34s %-22s %-22s %-7s %-22s %-22s %s\n' "${rows[i]}" \
    "$(each "$i" old 1)" "$(each "$i" new 1)" "$(ratio "$(best "$i" old 1)" "$(best "$i" new 1)")" \
    "$(each "$i" old 2)" "$(each "$i" new 2)" "$(ratio "$(best "$i" old 2)" "$(best "$i" new 2)")"
  for log in "$out/log-$i-"*; do
    grep -q '^decode' "$log" && continue
    failed=1
    echo "FAILED: ${rows[i]}, $(basename "$log")"
    tail -3 "$log"
  done
done
exit $failed
