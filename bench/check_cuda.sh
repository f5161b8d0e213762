#!/usr/bin/env bash
# Runs the op suite's cases on all GPUs of this machine (or those of CUDA_VISIBLE_DEVICES), plain and under compute-sanitizer, each in its own process.
#   bench/check_cuda.sh OPS_TEST [PART ...]
# OPS_TEST: the test program of src/ops, built with the cuda preset. Parts (default: all):
#   suite      every case, without a tool
#   memcheck   every case under memcheck
#   racecheck  every case under racecheck but those that repeat the same kernels overlapped (cuda_in_service,
#              cuda_one_by_one), because racecheck only follows shared memory within one kernel
# FILTER: cases (*cuda*:OpTuning*). PER_GPU: concurrent processes on a GPU (cores / GPUs, at most 16).
# SECONDS_OF_<part>: limits (suite 240, memcheck 240, racecheck 570). SAMPLE_LAUNCHES: launches that racecheck checks
# in cases that sample (100). LOGS: folder for the log of each case (a temporary one).
set -uo pipefail
[ $# -ge 1 ] || { sed -n '2,12s/^# *//p' "$0" >&2; exit 2; }
nvidia-smi -L > /dev/null || { echo "no NVIDIA GPU answers: nothing would be checked" >&2; exit 2; }
test=$(realpath "$1"); shift
parts=("$@"); [ $# -gt 0 ] || parts=(suite memcheck racecheck)
cores=$(nproc)
[ -n "${CUDA_VISIBLE_DEVICES-}" ] || CUDA_VISIBLE_DEVICES=$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd,)
IFS=, read -ra devices <<< "$CUDA_VISIBLE_DEVICES"
gpus=${#devices[@]} all_devices=$CUDA_VISIBLE_DEVICES
per_gpu=${PER_GPU:-$((cores / gpus > 16 ? 16 : cores / gpus > 1 ? cores / gpus : 1))}
logs=${LOGS:-$(mktemp -d)} filter=${FILTER:-*cuda*:OpTuning*} failed=0
mkdir -p "$logs"
export test gpus logs all_devices

# Lists the cases of a filter; those for which racecheck takes longest come first.
cases() {
  "$test" --gtest_list_tests --gtest_filter="$1" |
    awk '/^[^ ]/ {suite = $1; next} {print suite $1}' |
    awk '{late = 2}
         /Prefill|OpSteps|Streamed|Route|Experts/ {late = 1}
         /Sample|OpChain|Logprobs|Cuts/ {late = 0}
         {print late, $0}' |
    sort -s -n -k1,1 | cut -d' ' -f2
}

# Runs one case under a tool ("none": without one). The first line of its log has the outcome in a word.
# Kernels named nvjet are cuBLASLt's; races that racecheck reports inside them are ignored. Cases that sample
# repeat the same kernels by the thousand, so racecheck checks their first launches only.
one_case() { # TOOL CASE
  local log="$logs/$1-${2//\//_}" begin=$SECONDS all rc ours command=()
  IFS=, read -ra devices <<< "$all_devices"
  export CUDA_VISIBLE_DEVICES=${devices[SLOT % gpus]}
  echo "CUT OFF $2" > "$log"
  [ "$1" = none ] || command=(compute-sanitizer --print-limit 100000 --tool "$1")
  [ "$1" = racecheck ] && command+=(--kernel-name kns=skiff --kernel-name kns=nvjet)
  [[ $1 == racecheck && $2 == *Sample* ]] && command+=(--launch-count "${SAMPLE_LAUNCHES:-100}")
  all=$("${command[@]}" "$test" --gtest_filter="$2" 2>&1); rc=$?
  ours=$(grep -E '^========= .*(Error|Warning)' <<< "$all" | grep -v 'Race reported between .* access at nvjet')
  if grep -q '^\[  PASSED  \] 0 ' <<< "$all" && grep -q '^\[  SKIPPED \] 1 ' <<< "$all"; then
    echo "skipped $2" > "$log"
  elif grep -q '^\[  PASSED  \] 1 ' <<< "$all" &&
    { [ "$1" = none ] || grep -q 'SUMMARY: 0' <<< "$all" ||
      { grep -q 'RACECHECK SUMMARY' <<< "$all" && [ -z "$ours" ]; }; }; then
    echo "clean $((SECONDS - begin)) $2" > "$log"
  else
    { echo "NOT CLEAN $2, exit code $rc"; grep -vE '^\[|^$|nvjet' <<< "$all" | cut -c1-300 | head -40; } > "$log"
  fi
}
export -f one_case

run_part() { # PART TOOL LIMIT FILTER
  local list=$logs/cases-$1 begin=$SECONDS total
  cases "$4" > "$list"
  total=$(wc -l < "$list")
  printf '\n## %s: %s cases, %s GPUs, %s processes each\n' "$1" "$total" "$gpus" "$per_gpu"
  timeout -k 5 "$3" xargs -a "$list" -P $((gpus * per_gpu)) --process-slot-var=SLOT -I{} \
    bash -c 'one_case "$@"' _ "$2" {}
  local clean skipped
  clean=$(cat "$logs/$2"-* | grep -c '^clean ') skipped=$(cat "$logs/$2"-* | grep -c '^skipped ')
  echo "$1: $clean clean, $skipped skipped of $total, $((SECONDS - begin)) s; of the others:"
  for log in "$logs/$2"-*; do grep -qE '^(clean|skipped) ' "$log" || head -14 "$log"; done | head -150
  while read -r name; do [ -e "$logs/$2-${name//\//_}" ] || echo "NOT STARTED $name"; done < "$list"
  echo "$1, longest:"; sed -nE 's/^clean ([0-9]+) (.*)/\1 s \2/p' "$logs/$2"-* | sort -rn | head -8
  [ $((clean + skipped)) = "$total" ] && [ "$total" -gt 0 ] || failed=1
}

for part in "${parts[@]}"; do
  case $part in
    suite) run_part suite none "${SECONDS_OF_suite:-240}" "$filter" ;;
    memcheck) run_part memcheck memcheck "${SECONDS_OF_memcheck:-240}" "$filter" ;;
    racecheck)
      run_part racecheck racecheck "${SECONDS_OF_racecheck:-570}" "$filter:-*cuda_in_service*:*cuda_one_by_one*" ;;
    *) echo "FAILED: there is no part \"$part\""; failed=1 ;;
  esac
done
[ $failed = 0 ] && echo "all clean" || echo "something FAILED: see above"
exit $failed
