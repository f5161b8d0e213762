#!/usr/bin/env bash
# Writes docs/parameters.md from the program's own table of flags.
#   tools/make_parameters.sh [SKIFF]
set -euo pipefail
cd "$(dirname "$0")/.."
{
  cat <<'HEAD'
# Parameters

Made by `tools/make_parameters.sh` from the table that the program itself reads; do not edit.
[中文](zh/parameters.md)

Names and meanings are those of FastDeploy 2.x where it has them. Every flag is accepted with `-`
or `_` (`--max-model-len`, `--max_model_len`), as `--flag VALUE` or `--flag=VALUE`; a switch also
as `--no-flag`. An unknown flag is an error that names the nearest match; a known one that cannot
apply is accepted with one warning.
HEAD
  "${1:-./skiff}" help --markdown
} > docs/parameters.md
