#!/usr/bin/env bash
# Builds every *_fuzz.cc with libFuzzer, AddressSanitizer and UBSan, and runs each for some
# seconds. Inputs that crash are left in build/fuzz/crashes; the corpus grows in build/fuzz/corpus.
#   tools/fuzz.sh SECONDS [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
shift || true
[ -f build/fuzz/build.ninja ] || cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target fuzzers
targets=("$@")
((${#targets[@]})) || mapfile -t targets < <(cd build/fuzz && ls ./*_fuzz)
mkdir -p build/fuzz/crashes
for target in "${targets[@]}"; do
  name=$(basename "$target")
  corpus=(build/fuzz/corpus/"$name")
  mkdir -p "${corpus[0]}"
  [ -d tests/fuzz/"$name" ] && corpus+=(tests/fuzz/"$name")
  echo "fuzzing $name for $seconds s"
  build/fuzz/"$name" -max_total_time="$seconds" -max_len=16384 -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix=build/fuzz/crashes/ -verbosity=0 "${corpus[@]}"
done
echo "fuzzing: ${#targets[@]} targets, no crash"
