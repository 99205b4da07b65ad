#!/bin/sh
# Runs a command in a clean clone of this tree inside a bare Debian root, as on a new user's machine,
# where only apt is installed.
#
#   sh tests/fresh.sh [--release NAME] [--keep] [COMMAND]
#
#   COMMAND          a line for sh, run in the clone; both commands of the README by default
#   --release NAME   Debian's release, as bookworm or trixie; this machine's by default
#   --keep           keep the root; the next run with --keep starts with the packages of this run
#
# The clone has the last commit. The script needs root (chroot and mounts), a Debian with its own package
# sources, and 8 GB in $TMPDIR. The status is the command's.
set -eu

tree=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
release=
keep=
die() { printf 'fresh: %s\n' "$*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --release)
      release=${2:-}
      shift
      case $release in '' | *[!a-z]*) die "--release '$release' is not the name of a release, such as trixie" ;; esac
      ;;
    --keep) keep=yes ;;
    -*) die "unknown option $1; give --release NAME or --keep" ;;
    *) break ;;
  esac
  shift
done
[ $# -le 1 ] || die "got $# commands; give one, in quotes"
command=${1:-"sh experiments/quickstart.sh && sh tests/run.sh"}

[ "$(id -u)" = 0 ] || die "this script needs root, for chroot and mounts"
. "$tree/tests/debian_root.sh"
[ -f $debian_sources ] || die "$debian_sources is missing; this script needs Debian"
release=${release:-$debian_release}
command -v mmdebstrap >/dev/null || apt-get install -y mmdebstrap >&2
temporary=${TMPDIR:-/tmp}
base=$temporary/pyrdma-fresh-$release
root=$temporary/pyrdma-fresh-$release-root

unmount() {
  for mounted in dev/shm dev/pts dev/null dev/zero dev/full dev/random dev/urandom dev/tty dev proc sys; do
    umount "$root/$mounted" 2>/dev/null || umount -l "$root/$mounted" 2>/dev/null || true
  done
}
trap 'unmount; [ -n "$keep" ] || rm -rf --one-file-system "$root"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
unmount

# --- the root ---------------------------------------------------------------------------------

if [ ! -e "$base/.made" ]; then
  make_debian_root "$release" "$base" ca-certificates
  touch "$base/.made"
fi
if [ -z "$keep" ] || [ ! -e "$root/.made" ]; then
  rm -rf --one-file-system "$root"
  cp -a "$base" "$root"
fi
copy_ways_out "$root"
# pip's settings, and the folders of wheels that the settings name.
for path in /etc/pip.conf "$HOME/.config/pip" $(printf '%s' "${PIP_FIND_LINKS:-}" | tr ' ' '\n' | grep '^/'); do
  [ -e "$path" ] || continue
  mkdir -p "$root$(dirname "$path")"
  cp -a "$path" "$root$(dirname "$path")/"
done

mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys" 2>/dev/null || mount -t sysfs sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir -p "$root/dev/shm" "$root/dev/pts"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t devpts devpts "$root/dev/pts" 2>/dev/null || true

# --- the run ----------------------------------------------------------------------------------

rm -rf "$root/src"
mkdir -p "$root/src"
git clone -q "$tree" "$root/src/pyrdma"
began=$(date +%s)
status=0
env -i HOME="$HOME" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb \
  $(env | grep -E '^(PIP_|PYRDMA_|https?_proxy=|HTTPS?_PROXY=|no_proxy=|NO_PROXY=|SSL_CERT|REQUESTS_CA)') \
  chroot "$root" sh -c "cd /src/pyrdma && $command" || status=$?
printf 'fresh: Debian %s: status %s after %s s\n' "$release" "$status" $(($(date +%s) - began)) >&2
exit $status
