#!/usr/bin/env bash
# Installs what a build, a test run or a fuzz run needs on Debian 12, and nothing that is there. On other
# releases of Debian and on Ubuntu it tries the same packages.
#   tools/install_deps.sh build|test|fuzz
set -euo pipefail

# Debian 12 has this Boost beside an older default; later releases have a default that is newer, and not this one.
boost=libboost-dev
grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release && boost=libboost1.81-dev
build=(g++ cmake ninja-build ccache pkg-config "$boost" nlohmann-json3-dev libspdlog-dev
       libfmt-dev prometheus-cpp-dev libsentencepiece-dev libpcre2-dev libutf8proc-dev
       libssl-dev libedit-dev libyaml-dev libxxhash-dev libgrpc++-dev
       libhiredis-dev)
test=("${build[@]}" libgtest-dev libgmock-dev zlib1g-dev python3 python3-venv git openssl
      redis-server)
fuzz=("${build[@]}" clang-14 libclang-rt-14-dev)

case "${1:-build}" in
  build) wanted=("${build[@]}") ;;
  test) wanted=("${test[@]}") ;;
  fuzz) wanted=("${fuzz[@]}") ;;
  *) echo "usage: $0 build|test|fuzz" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "This script installs Debian 12 packages; elsewhere install the equivalents of:" >&2
  printf '  %s\n' "${wanted[@]}" >&2
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' \
    || missing+=("$package")
done

if ((${#missing[@]})); then
  echo "Installing: ${missing[*]}"
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "Run as root: apt-get install ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
  fi
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# The real client that the API tests use, in a virtual environment of the checkout.
if [ "${1:-build}" = test ]; then
  root=$(cd "$(dirname "$0")/.." && pwd)
  stamp="$root/.venv/.requirements"
  if ! cmp -s "$root/tests/requirements.txt" "$stamp"; then
    python3 -m venv "$root/.venv"
    "$root/.venv/bin/pip" install -q --disable-pip-version-check -r "$root/tests/requirements.txt"
    cp "$root/tests/requirements.txt" "$stamp"
  fi
fi
