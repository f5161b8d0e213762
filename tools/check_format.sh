#!/usr/bin/env bash
# Fails if a source file is not as .clang-format has it; without clang-format 14 it says so and passes
# (another version formats differently).
#   tools/check_format.sh [FILE...]      default: every source of src/
set -euo pipefail
cd "$(dirname "$0")/.."
format=$(command -v clang-format-14 || true)
if [ -z "$format" ]; then
  echo "format: skipped, there is no clang-format-14"
  exit 0
fi
files=("$@")
((${#files[@]})) || mapfile -t files < <(git ls-files 'src/*.h' 'src/*.cc' 'src/*.cu' 'src/*.cuh')
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 16 "$format" --dry-run -Werror
echo "format: ${#files[@]} files checked, 0 problem(s)"
