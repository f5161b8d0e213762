#!/usr/bin/env bash
# Measures the main CUDA figures of docs/performance.md on this machine's first GPU: checks first, then times.
#   bench/run_cuda.sh MODELS [PART ...] | tee bench/results/<machine>/$(date +%F)-all.txt
# MODELS holds folders Llama-3.1-8B, Qwen2.5-7B and ERNIE-4.5-21B-A3B-PT with config.json and the tokenizer; weights
# are random. Parts (bench/cuda_parts.sh; default: all): checks memcheck racecheck decode prefill profile kernels
# serve load. memcheck and racecheck use all GPUs (bench/check_cuda.sh has their settings).
# BUILD: folder with the programs (build/cuda); missing ones are built, existing ones are used as they are.
# LLAMA_REQUESTS: requests of the second load (512).
set -uo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,9s/^# *//p' "$0" >&2; exit 2; }
nvidia-smi -L > /dev/null || { echo "no NVIDIA GPU answers: nothing would be measured" >&2; exit 2; }
models=$(realpath "$1"); shift
all=(checks memcheck racecheck decode prefill profile kernels serve load)
parts=("$@"); [ $# -gt 0 ] || parts=("${all[@]}")
build=${BUILD:-build/cuda} port=${PORT:-8123} out=$(mktemp -d)
trap 'rm -rf "$out"; kill $(jobs -p) 2>/dev/null' EXIT

say() { printf '\n## [%s s] %s\n' "$SECONDS" "$*"; }
# Failures are recorded in a file, because much of this runs in pipes.
failed() { echo "FAILED: $*"; touch "$out/failed"; }
must() { "$@" || failed "$*"; }
program() {
  local p
  for p in "$build/$1" "$build/src/$1" "$build/bench/$1"; do
    [ -f "$p" ] && echo "$p" && return
  done
  cmake --build "$build" --target "$1" > /dev/null && program "$1"
}
. bench/cuda_parts.sh

gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)
echo "# $(date +%F), $gpu, $(nproc) cores, commit ${COMMIT:-$(git rev-parse --short HEAD)}"
for part in "${parts[@]}"; do
  case " ${all[*]} " in
    *" $part "*) $part ;;
    *) failed "there is no part \"$part\"" ;;
  esac
done
[ -e "$out/failed" ] && { say 'something FAILED: see above'; exit 1; }
say 'all ran'
