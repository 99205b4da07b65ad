#!/bin/sh
# Runs a command on a machine with real verbs: a guest with Debian's kernel and a Soft-RoCE device,
# rxe0, over the file system of this one.
#
#   sh tests/softroce/run.sh [--pair] [--timeout SECONDS] COMMAND [ARGUMENT...]
#
# The guest sees this machine's files read-only; what it writes is lost, except in the folder
# $PYRDMA_SHARE, which is $PYRDMA_SHARE here, too, when it is set before. The environment is passed
# on. With --pair two guests, 10.99.0.1 and 10.99.0.2, joined by a wire, run the same command, which
# finds its number, 0 or 1, in $PYRDMA_GUEST.
#
# PYRDMA_SOFTROCE_ACCEL=kvm is faster where KVM works; emulation runs everywhere and is the default.
#
# The status is the command's (of a pair the first that is not 0); 77 when the bed cannot be had
# here, with the reason on standard error; 124 when time is up.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
cache=${PYRDMA_SOFTROCE_CACHE:-$root/build/softroce}
packages="qemu-system-x86 busybox-static cpio kmod rdma-core ibverbs-providers ibverbs-utils
  librdmacm1 rdmacm-utils perftest iproute2"
guests=1
limit=300

skip() { printf 'softroce: skipped: %s\n' "$*" >&2; exit 77; }
die() { printf 'softroce: %s\n' "$*" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case $1 in
    --pair) guests=2 ;;
    --timeout) limit=$2 && shift ;;
    --) shift && break ;;
    -*) die "unknown option $1; there are --pair and --timeout SECONDS" ;;
    *) break ;;
  esac
  shift
done
[ $# -gt 0 ] || die "which command? sh tests/softroce/run.sh [--pair] [--timeout SECONDS] COMMAND..."

# --- what is needed ---------------------------------------------------------------------------

[ "$(uname -m)" = x86_64 ] || skip "the guest's kernel is for x86_64, this machine is $(uname -m)"

missing() {
  for program in qemu-system-x86_64 busybox cpio depmod rdma ibv_devices rping ib_write_lat; do
    command -v "$program" >/dev/null || printf '%s ' "$program"
  done
}
PATH=$PATH:/usr/sbin:/sbin

apt() { # apt-get as root, which may also be a sudo that asks nothing
  command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" = 0 ]; then
    DEBIAN_FRONTEND=noninteractive apt-get "$@" >&2
  else
    sudo -n env DEBIAN_FRONTEND=noninteractive apt-get "$@" >&2
  fi
}

if [ -n "$(missing)" ]; then
  # shellcheck disable=SC2086 # a list
  apt install -y --no-install-recommends $packages ||
    { apt update && apt install -y --no-install-recommends $packages; } ||
    skip "missing: $(missing); sudo apt-get install -y $(echo $packages)"
  [ -z "$(missing)" ] || skip "apt-get did not bring $(missing)"
fi

# --- the kernel and its modules, once ---------------------------------------------------------

# In dependency order. crc32_generic is needed by rdma_rxe, though no dependency says so.
modules="virtio_pci 9p 9pnet_virtio overlay virtio_net crc32_generic rdma_rxe ib_uverbs rdma_ucm dummy"

newest_kernel() {
  apt-cache depends linux-image-amd64 2>/dev/null |
    sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1
}

fetch_kernel() {
  command -v apt-get >/dev/null || skip "no apt-get here to download a kernel with"
  name=$(newest_kernel)
  [ -n "$name" ] || { apt update && name=$(newest_kernel); } || true
  [ -n "$name" ] || skip "apt knows no package linux-image-amd64"
  # What is in the image belongs to its name.
  made_of=$(cat "$here/init" "$here/run.sh" | cksum | cut -d ' ' -f 1)
  kernel=$cache/$name-$made_of
  [ ! -e "$kernel/initramfs" ] || return 0
  fresh=$cache/fresh.$$
  mkdir -p "$fresh/unpacked"
  if ! download; then # what apt knows may be too old
    apt update || true
    name=$(newest_kernel)
    kernel=$cache/$name-$made_of
    download || skip "apt-get could not download $name"
  fi
  dpkg -x "$fresh"/*.deb "$fresh/unpacked"
  build_initramfs
  mkdir -p "$fresh/done"
  mv "$fresh"/unpacked/boot/vmlinuz-* "$fresh/done/kernel"
  mv "$fresh/initramfs" "$fresh/done/initramfs"
  mv "$fresh/done" "$kernel" 2>/dev/null || true # another run was faster
  rm -rf "$fresh"
}

download() { (cd "$fresh" && apt-get -o APT::Sandbox::User=root download "$name" >&2); }

build_initramfs() {
  version=$(basename "$fresh"/unpacked/lib/modules/*)
  depmod -b "$fresh/unpacked" "$version"
  image=$fresh/image
  mkdir -p "$image/bin" "$image/modules"
  cp "$(command -v busybox)" "$image/bin/busybox"
  : >"$image/modules/order"
  for module in $modules; do
    # A dependency list is in the order in which modules must go; the last needed stands last.
    modprobe -d "$fresh/unpacked" -S "$version" --show-depends "$module" 2>/dev/null |
      sed -n 's/^insmod \([^ ]*\).*/\1/p' >"$fresh/list"
    while read -r file; do
      name_of=$(basename "$file")
      [ ! -e "$image/modules/$name_of" ] || continue
      cp "$file" "$image/modules/"
      echo "$name_of" >>"$image/modules/order"
    done <"$fresh/list"
  done
  cp "$here/init" "$image/init"
  chmod 755 "$image/init"
  (cd "$image" && find . | cpio -o -H newc --quiet | gzip -1) >"$fresh/initramfs"
}

# --- what is left behind: nothing -------------------------------------------------------------

scratch=${TMPDIR:-/tmp}/softroce
for old in "$scratch".*; do # of runs that were killed
  owner=${old#"$scratch".}
  [ ! -O "$old" ] || kill -0 "${owner%%.*}" 2>/dev/null || rm -rf "$old"
done
fresh=
run=
share=
processes=
finish() {
  for process in $processes; do kill "$process" 2>/dev/null || true; done
  [ -z "$fresh$run" ] || rm -rf "$fresh" "$run"
  [ -n "$share" ] || return 0
  for leftover in environment directory folder command guest.sh status.0 status.1; do
    rm -f "$share/$leftover"
  done
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

mkdir -p "$cache"
fetch_kernel

# --- one run ----------------------------------------------------------------------------------

run=$(mktemp -d "$scratch.$$.XXXXXX")
share=${PYRDMA_SHARE:-$run/share}
mkdir -p "$share"
share=$(CDPATH='' cd -- "$share" && pwd)
export PYRDMA_SHARE="$share"

export -p >"$share/environment"
pwd >"$share/directory"
echo "$share" >"$share/folder"
cp "$here/guest.sh" "$share/guest.sh"
quote() { printf "'%s' " "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }
for argument; do quote "$argument"; done >"$share/command"
rm -f "$share/status.0" "$share/status.1"

boot() { # boot NUMBER: one guest, its output on standard output
  # The counter of all emulated CPUs is the host's: without tsc=reliable the kernel does not believe
  # it, and every reading of a clock is one of an emulated HPET, some microseconds.
  network="-nic none"
  if [ "$guests" = 2 ]; then
    [ "$1" = 0 ] && role=server=on || role=server=off
    if [ "$1" = 1 ]; then # the wire has an end once the other guest is there
      for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ ! -S "$run/wire" ] || break
        sleep 0.25
      done
    fi
    network="-netdev stream,id=wire,$role,addr.type=unix,addr.path=$run/wire
      -device virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0$1"
  fi
  # shellcheck disable=SC2086 # a list
  exec timeout -k 5 "$limit" qemu-system-x86_64 -accel "${PYRDMA_SOFTROCE_ACCEL:-tcg,thread=multi}" -cpu max \
    -smp 2 -m 2048 -nodefaults -display none -no-reboot \
    -kernel "$kernel/kernel" -initrd "$kernel/initramfs" \
    -append "console=ttyS0 panic=-1 quiet no_timer_check tsc=reliable softroce.guest=$1" \
    -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=host,mount_tag=host \
    -fsdev "local,id=share,path=$share,security_model=none,multidevs=remap" \
    -device virtio-9p-pci,fsdev=share,mount_tag=share \
    -serial "file:$run/console.$1" -chardev stdio,id=out,signal=off -serial chardev:out \
    $network </dev/null 2>"$run/qemu.$1"
}

status=0
number=0
while [ $number -lt $guests ]; do
  boot $number &
  processes="$processes $!"
  number=$((number + 1))
done
number=0
for process in $processes; do
  ended=0
  wait "$process" || ended=$?
  if [ -s "$share/status.$number" ]; then
    ended=$(cat "$share/status.$number")
  elif [ $ended != 124 ]; then
    tail -n 20 "$run/qemu.$number" "$run/console.$number" >&2 || true
    ended=1
  else
    printf 'softroce: guest %s was stopped after %s s\n' "$number" "$limit" >&2
  fi
  [ $status != 0 ] || status=$ended
  number=$((number + 1))
done
exit "$status"
