#!/bin/sh
# Makes a disk of a Debian machine with systemd and sshd, once, and prints its path: build/softroce/*.ext4.
# run.sh --disk boots it. The machine's public host key is beside it, in *.pub.
#
#   sh tests/softroce/disk.sh bare   what Debian's own image has at least, without Python
#   sh tests/softroce/disk.sh rdma   with Python, rdma-core and the providers of libibverbs
#
# The machine gets apt's settings and certificates of this one. The script needs root, for mmdebstrap.
# The status is 77 if no disk can be made here, with the reason on standard error, `softroce: skipped: ...`.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cache=${PYRDMA_SOFTROCE_CACHE:-$here/../../build/softroce}
skip() { printf 'softroce: skipped: %s\n' "$*" >&2; exit 77; }

packages=ca-certificates,dbus,iproute2,kmod,libpam-systemd,openssh-server,systemd-sysv,udev
kind=${1:-}
case $kind in
  bare) ;;
  rdma) packages=$packages,ibverbs-providers,librdmacm1,python3,rdma-core ;;
  *) echo "softroce: a disk is bare or rdma, not '$kind'" >&2; exit 2 ;;
esac
. "$here/../debian_root.sh"
[ "$(id -u)" = 0 ] || skip "a root of Debian is made by root"
[ -f $debian_sources ] || skip "$debian_sources is missing; a disk is made on Debian"
command -v mmdebstrap >/dev/null || skip "missing: mmdebstrap; apt-get install -y mmdebstrap e2fsprogs"

mkdir -p "$cache"
cache=$(CDPATH='' cd -- "$cache" && pwd)
made_of=$(cat "$here/disk.sh" "$here/../debian_root.sh" | cksum | cut -d ' ' -f 1)
disk=$cache/$debian_release-$kind-$made_of
exec 9>"$cache/disk.lock"
flock 9
if [ ! -f "$disk.ext4" ]; then
  work=$cache/disk.new
  trap 'rm -rf --one-file-system "$work" "$work.ext4"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  rm -f "$cache/$debian_release-$kind-"*
  make_debian_root "$debian_release" "$work" "$packages" || skip "mmdebstrap could not make a root of Debian"
  cat >"$work/etc/systemd/system/softroce.service" <<'UNIT'
[Unit]
Description=Networks and the Soft-RoCE device
After=ssh.service
[Service]
Type=oneshot
ExecStart=/bin/sh /run/softroce/guest.sh
RemainAfterExit=yes
[Install]
WantedBy=multi-user.target
UNIT
  systemctl --quiet --root="$work" enable softroce.service
  # Nobody logs in at the console, and no timer takes the guest's CPU from what is measured.
  systemctl --quiet --root="$work" mask getty@tty1.service serial-getty@ttyS0.service \
    apt-daily.timer apt-daily-upgrade.timer
  mke2fs -q -t ext4 -O ^has_journal -d "$work" "$work.ext4" 5G >&2 # it also says that it makes a file
  cp "$work/etc/ssh/ssh_host_ed25519_key.pub" "$disk.pub"
  mv "$work.ext4" "$disk.ext4"
fi
echo "$disk.ext4"
