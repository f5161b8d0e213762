#!/usr/bin/env bash
# Builds every *_fuzz.cc with libFuzzer, AddressSanitizer and UBSan, and runs each for some
# seconds, one on each core. Inputs that crash are left in build/fuzz/crashes; the corpus grows in
# build/fuzz/corpus, and what each target printed is in build/fuzz/logs.
#   tools/fuzz.sh SECONDS [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
export FUZZ_SECONDS=${1:-20}
shift || true
[ -f build/fuzz/build.ninja ] || cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target fuzzers
targets=("$@")
((${#targets[@]})) || mapfile -t targets < <(cd build/fuzz && ls ./*_fuzz)
mkdir -p build/fuzz/{crashes,logs}

fuzz() {
  local name corpus log
  name=$(basename "$1")
  corpus=(build/fuzz/corpus/"$name")
  log=build/fuzz/logs/$name
  mkdir -p "${corpus[0]}"
  [ -d tests/fuzz/"$name" ] && corpus+=(tests/fuzz/"$name")
  if build/fuzz/"$name" -max_total_time="$FUZZ_SECONDS" -max_len=16384 -timeout=10 \
    -rss_limit_mb=2048 -artifact_prefix=build/fuzz/crashes/ -verbosity=0 "${corpus[@]}" >"$log" 2>&1
  then
    echo "fuzzed $name for $FUZZ_SECONDS s"
  else
    cat "$log"
    echo "fuzzing $name FAILED"
    return 1
  fi
}
export -f fuzz

printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}'
echo "fuzzing: ${#targets[@]} targets, no crash"
