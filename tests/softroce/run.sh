#!/bin/sh
# Runs a command on a machine with real verbs: a guest with Debian's kernel, a Soft-RoCE device rxe0,
# and the file system of this machine.
#
#   sh tests/softroce/run.sh [--pair] [--timeout SECONDS] COMMAND [ARGUMENT...]
#   sh tests/softroce/run.sh --disk IMAGE KEY PORT,PORT [--timeout SECONDS] COMMAND [ARGUMENT...]
#
# The guest sees this machine's files read-only and loses its own writes, except in the folder
# $PYRDMA_SHARE. The host's folder is $PYRDMA_SHARE, too, if the caller sets it. The guest gets the
# caller's environment. With --pair two guests, 10.99.0.1 and 10.99.0.2, connected by a wire, run the
# same command; $PYRDMA_GUEST has the guest's number, 0 or 1.
#
# With --disk two guests boot a disk of disk.sh, with systemd, and lose their writes to it. COMMAND runs on
# this machine once both are ready, and the guests end with it. root logs in at PORT of 127.0.0.1, one for
# each guest, with the public key in the file KEY. The guests reach what this machine reaches.
#
# The guest does not isolate the command: the guest's root reads all files that you may read, and its
# files in the shared folder are yours, with the mode that the command chose.
#
# PYRDMA_SOFTROCE_ACCEL=kvm is faster where KVM works; emulation runs everywhere and is the default.
# PYRDMA_SOFTROCE_BOOT_S is the time limit of a boot, after which run.sh tries another; 60 by default.
# PYRDMA_SOFTROCE_CACHE is the folder of the guest's kernel; build/softroce by default.
#
# The status is the command's (of a pair the first that is not 0); 77 if no guest can run here, with
# the reason on standard error, `softroce: skipped: ...`; 124 after the time limit. With --disk the time
# limit ends the guests alone: the command notices and ends itself.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
cache=${PYRDMA_SOFTROCE_CACHE:-$root/build/softroce}
packages="qemu-system-x86 busybox-static cpio kmod rdma-core ibverbs-providers ibverbs-utils
  librdmacm1 rdmacm-utils perftest iproute2"
guests=1
limit=300
disk=
boot_s=${PYRDMA_SOFTROCE_BOOT_S:-60}

skip() { printf 'softroce: skipped: %s\n' "$*" >&2; exit 77; }
die() { printf 'softroce: %s\n' "$*" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case $1 in
    --pair) guests=2 ;;
    --disk)
      [ $# -ge 4 ] || die "--disk takes IMAGE KEY PORT,PORT"
      disk=$2 key=$3 ports=$4 guests=2
      for file in "$disk" "$key"; do [ -f "$file" ] || die "--disk: $file is no file; disk.sh makes disks"; done
      case $ports in
        *[!0-9,]* | *,*,* | ,* | *,) die "--disk: '$ports' is not PORT,PORT" ;;
        *,*) ;;
        *) die "--disk: '$ports' is one port; two guests boot, so give PORT,PORT" ;;
      esac
      shift 3
      ;;
    --timeout)
      limit=${2:-}
      case $limit in
        '' | *[!0-9]* | 0*) die "--timeout '$limit' is not a number of seconds from 1 on" ;;
      esac
      shift
      ;;
    --) shift && break ;;
    -*) die "unknown option $1; there are --pair and --timeout SECONDS" ;;
    *) break ;;
  esac
  shift
done
case $boot_s in
  '' | *[!0-9]* | 0*) die "PYRDMA_SOFTROCE_BOOT_S='$boot_s' is not a number of seconds from 1 on" ;;
esac
[ $# -gt 0 ] || die "give a command: sh tests/softroce/run.sh [--pair] [--timeout SECONDS] COMMAND..."
[ -z "$disk" ] || exec 3<&0 # the input of a command that runs here

# --- clean-up ---------------------------------------------------------------------------------

temporary=$(CDPATH='' cd -- "${TMPDIR:-/tmp}" && pwd -P) || die "TMPDIR=${TMPDIR:-/tmp} is no folder"
runs=$temporary/pyrdma-softroce-run

sweep() { # removes the folders of killed runs, whose lock is free; a new folder may not have its lock yet
  for old in "$runs".[0-9]*.??????; do
    owner=${old#"$runs".}
    case ${owner%.??????} in *[!0-9]*) continue ;; esac
    [ -d "$old" ] && [ ! -h "$old" ] && [ -O "$old" ] || continue
    if [ -f "$old/lock" ]; then
      flock -n "$old/lock" rm -rf "$old" || true
    else
      find "$old" -maxdepth 0 -mmin +60 -exec rm -rf {} + || true
    fi
  done
}

fresh=
run=
processes=
finish() {
  trap '' INT TERM HUP
  for process in $processes; do # the process may have become another program, so the script sends SIGKILL
    kill -KILL "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  [ -z "$fresh" ] || rm -rf "$fresh"
  if [ -n "$run" ]; then
    exec 9>&-
    [ -z "$processes" ] || flock -w 10 "$run/lock" true || true # an ending guest holds the lock
    rm -rf "$run"
  fi
}
end_at_signals() {
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
}
trap finish EXIT
end_at_signals

# --- requirements -----------------------------------------------------------------------------

[ "$(uname -m)" = x86_64 ] || skip "the guest's kernel is for x86_64, this machine is $(uname -m)"

PATH=$PATH:/usr/sbin:/sbin
missing() {
  for program in qemu-system-x86_64 busybox cpio depmod setpriv flock rdma ibv_devices rping \
    ib_write_lat; do
    command -v "$program" >/dev/null || printf '%s ' "$program"
  done
}

apt() { # apt-get as root, or through a sudo that asks for no password
  command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" = 0 ]; then
    DEBIAN_FRONTEND=noninteractive apt-get "$@" >&2
  else
    sudo -n env DEBIAN_FRONTEND=noninteractive apt-get "$@" >&2
  fi
}

mkdir -p "$cache"
cache=$(CDPATH='' cd -- "$cache" && pwd)
. "$here/image.sh"
find_kernel
if [ -n "$(missing)" ]; then
  # shellcheck disable=SC2086 # a list
  apt install -y --no-install-recommends $packages ||
    { apt update && apt install -y --no-install-recommends $packages; } ||
    skip "missing: $(missing); sudo apt-get install -y $(echo $packages)"
  [ -z "$(missing)" ] || skip "apt-get did not bring $(missing)"
fi
sweep
take_kernel

# --- one run ----------------------------------------------------------------------------------

run=$(mktemp -d "$runs.$$.XXXXXX") # for its owner only: the environment may hold secrets
exec 9>"$run/lock.new"
flock 9
mv "$run/lock.new" "$run/lock" # held as long as this run or a guest of the run lives
control=$run/control
mkdir "$control"

share=${PYRDMA_SHARE:-$run/share}
mkdir -p -- "$share" || die "PYRDMA_SHARE=$share cannot be made"
share=$(CDPATH='' cd -- "$share" && pwd -P)
case $share in
  / | /dev | /dev/softroce* | /proc | /proc/* | /sys | /sys/*)
    die "PYRDMA_SHARE=$share cannot be shared, since the guest has its own; give another folder"
    ;;
  *'
'*) die "PYRDMA_SHARE may hold no line break" ;;
esac
[ -w "$share" ] || die "PYRDMA_SHARE=$share cannot be written to"
export PYRDMA_SHARE="$share"

pwd >"$control/directory"
echo "$share" >"$control/folder"
if [ -n "$disk" ]; then
  cp "$here/machine.sh" "$control/guest.sh"
  cp -- "$key" "$control/key"
  disk=$(CDPATH='' cd -- "$(dirname -- "$disk")" && pwd -P)/$(basename -- "$disk")
else
  cp "$here/guest.sh" "$control/guest.sh"
fi
quote() { printf "'%s' " "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }
for argument; do quote "$argument"; done >"$control/command"

# A guest ends with this run, even if the run is killed with -9: the kernel kills the guest's process
# with its parent. The process ends at once if its parent was gone before it could ask the kernel.
ends_with_its_parent="setpriv --pdeathsig KILL sh -c"
# shellcheck disable=SC2016 # expanded there
becomes='[ "$PPID" = "$0" ] || exit 1; exec "$@"'
with_a_limit="exec timeout -k 5 \"\$0\" $ends_with_its_parent '$becomes' \$\$ \"\$@\""

commas() { printf '%s' "$1" | sed 's/,/,,/g'; } # a comma within an option of QEMU

boot() { # boot NUMBER: becomes one guest, its output on standard output
  cd "$run" # so that paths are short and have no commas, which QEMU reads as separators
  guest=$1
  case $guests$guest in
    1*) set -- -nic none ;;
    20) set -- -netdev stream,id=wire,server=on,addr.type=unix,addr.path=wire ;;
    21) set -- -netdev stream,id=wire,server=off,addr.type=unix,addr.path=wire ;;
  esac
  [ $guests = 1 ] || set -- "$@" -device virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0"$guest"
  words="softroce.guest=$guest"
  if [ -n "$disk" ]; then
    port=${ports%,*}
    [ "$guest" = 0 ] || port=${ports#*,}
    words="$words softroce.disk net.ifnames=0"
    # QEMU writes to a file without a name in TMPDIR.
    TMPDIR=$run
    export TMPDIR
    set -- "$@" -drive "file=$(commas "$disk"),format=raw,if=virtio,snapshot=on" \
      -netdev user,id=login,hostfwd=tcp:127.0.0.1:"$port"-:22 -device virtio-net-pci,netdev=login
  else
    set -- "$@" -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap \
      -device virtio-9p-pci,fsdev=host,mount_tag=host \
      -fsdev "local,id=share,path=$(commas "$share"),security_model=none,multidevs=remap" \
      -device virtio-9p-pci,fsdev=share,mount_tag=share
  fi
  # All emulated CPUs use the host's time-stamp counter. Without tsc=reliable the kernel does not trust
  # the counter and reads an emulated HPET for each clock reading, which takes some microseconds.
  #
  # security_model=none, since mapped-xattr would give the host files of mode 0600 and files in place
  # of symbolic links, and needs extended attributes, which a tmpfs lacks.
  # shellcheck disable=SC2086 # a list
  exec $ends_with_its_parent "$becomes" $$ sh -c "$with_a_limit" "$limit" qemu-system-x86_64 \
    -accel "${PYRDMA_SOFTROCE_ACCEL:-tcg,thread=multi}" -cpu max \
    -smp 2 -m 2048 -nodefaults -display none -no-reboot \
    -kernel "$kernel/kernel" -initrd "$kernel/initramfs" \
    -append "console=ttyS0 panic=-1 quiet no_timer_check tsc=reliable $words" \
    -fsdev local,id=control,path=control,security_model=none,multidevs=remap \
    -device virtio-9p-pci,fsdev=control,mount_tag=control \
    -serial "file:console.$guest" -chardev stdio,id=out,signal=off -serial chardev:out \
    "$@" 3<&- </dev/null 2>"qemu.$guest"
}

launch() { # launch COMMAND...: starts it in the background; a signal meanwhile does not leave the guest behind
  ended_by=
  trap 'ended_by=130' INT
  trap 'ended_by=143' TERM
  trap 'ended_by=129' HUP
  "$@" &
  launched=$!
  processes="$processes $launched"
  end_at_signals
  [ -z "$ended_by" ] || exit "$ended_by"
}

start() { # start NUMBER: waits until it has booted; about one boot in several hundred hangs
  attempt=1
  while :; do
    [ -n "$disk" ] || export -p >"$control/environment.$1"
    launch boot "$1"
    tries=0
    until [ -e "$control/booted.$1" ] || ! kill -0 "$launched" 2>/dev/null || [ $tries = $((4 * boot_s)) ]; do
      sleep 0.25
      tries=$((tries + 1))
    done
    [ $tries = $((4 * boot_s)) ] || return 0
    printf 'softroce: guest %s had not booted after %s s\n' "$1" "$boot_s" >&2
    [ $attempt -lt 3 ] || die "guest $1 does not boot here: $(tail -n 20 "$run/qemu.$1" "$run/console.$1")"
    kill -KILL "$launched" 2>/dev/null || true
    wait "$launched" 2>/dev/null || true
    processes=${processes% "$launched"}
    attempt=$((attempt + 1))
  done
}

start 0
[ $guests = 1 ] || start 1 # guest 0 has made the other end of the wire

if [ -n "$disk" ]; then
  number=-1
  for process in $processes; do
    number=$((number + 1))
    until [ -e "$control/ready.$number" ]; do
      kill -0 "$process" 2>/dev/null || die "guest $number ended: $(tail -n 20 "$run/qemu.$number" "$run/console.$number")"
      sleep 0.25
    done
  done
  here_now() { exec "$@" <&3 3<&- 7<&- 9>&-; }
  launch here_now "$@"
  wait "$launched" || exit $?
  exit 0
fi

status=0
number=0
for process in $processes; do
  ended=0
  wait "$process" || ended=$?
  tr -d '\r' <"$run/console.$number" 2>/dev/null | grep '^softroce: ' >&2 || true
  if [ -s "$control/status.$number" ]; then
    ended=$(cat "$control/status.$number")
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
