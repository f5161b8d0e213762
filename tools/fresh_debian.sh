#!/usr/bin/env bash
# Proves the README on a fresh Debian 12: a minimal root made by debootstrap, a clone of this
# checkout's HEAD, `make test`, then `make serve` and one chat request. Prints the times.
#   sudo tools/fresh_debian.sh ROOT_DIR [MIRROR]
# Needs root and debootstrap. ROOT_DIR is made if it does not exist and is left for inspection.
set -euo pipefail
root=${1:?usage: $0 ROOT_DIR [MIRROR]}
mirror=${2:-http://deb.debian.org/debian}
here=$(cd "$(dirname "$0")/.." && pwd)
port=8765

[ -d "$root/etc" ] || debootstrap --variant=minbase bookworm "$root" "$mirror"
# An answer of somebody else's server would be taken for that of the fresh one.
if curl -s "http://127.0.0.1:$port/live" >/dev/null; then
  echo "fresh: something answers on port $port already; end it first" >&2
  exit 1
fi
cleanup() {
  # The whole group: the shell in front of the server does not pass a signal on.
  if [ -n "${server:-}" ]; then
    kill -- "-$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  for mount in dev/shm dev proc; do umount "$root/$mount" 2>/dev/null || true; done
}
trap cleanup EXIT
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev" 2>/dev/null || mount --bind /dev "$root/dev"
mount --make-rslave "$root/dev" 2>/dev/null || true
cp /etc/resolv.conf "$root/etc/resolv.conf"

in_root() { chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb CI=true LANG=C.UTF-8 \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -ec "$1"; }

in_root 'export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends git make ca-certificates >/dev/null'
# Machines behind a proxy with a certificate of its own need it inside as well.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"

rm -rf "$root/root/skiff" "$root/root/skiff.git"
git clone -q --bare "$here" "$root/root/skiff.git"
in_root 'git clone -q /root/skiff.git /root/skiff'

start=$SECONDS
in_root 'cd /root/skiff && make test'
echo "fresh: make test took $((SECONDS - start)) s"
start=$SECONDS
in_root 'cd /root/skiff && make test' >/dev/null
echo "fresh: make test again took $((SECONDS - start)) s"

start=$(date +%s%N)
set -m  # the job gets a process group of its own
in_root "cd /root/skiff && exec make serve PORT=$port" &
server=$!
set +m
for _ in $(seq 600); do
  if answer=$(curl -sf "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
      -d '{"messages":[{"role":"user","content":"What is the capital of France?"}]}'); then break; fi
  sleep 0.05
done
echo "fresh: make serve answered after $((($(date +%s%N) - start) / 1000000)) ms"
echo "$answer"
[[ $answer == *Paris* ]] || { echo "fresh: no answer" >&2; exit 1; }
echo "fresh: passed"
