# Makes the settings of a host, now and at boot. site.yml runs it when one of them differs.
#
#   sh -s -- HUGE_PAGES GOVERNOR CLOCK_SOURCE MODULES [PATH TEXT]...
#
# MODULES is a list in one argument. An empty argument, or 0, leaves the setting as it is.
# /etc/pyrdma/before keeps what clean.yml restores.
set -eu
PATH=$PATH:/usr/sbin:/sbin
huge_pages=$1 governor=$2 clock_source=$3 modules=$4
shift 4
governors=/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
clock=/sys/devices/system/clocksource/clocksource0/current_clocksource
pages=/proc/sys/vm/nr_hugepages

die() { echo "$*" >&2; exit 1; }

mkdir -p /etc/pyrdma
if [ ! -e /etc/pyrdma/before ]; then
  {
    echo "huge_pages=$(cat $pages)"
    echo "governor=$(cat $governors 2>/dev/null || true)"
    echo "clock_source=$(cat $clock 2>/dev/null || true)"
  } >/etc/pyrdma/before.new
  mv /etc/pyrdma/before.new /etc/pyrdma/before
fi

while [ $# -gt 0 ]; do
  mkdir -p "${1%/*}"
  printf %s "$2" >"$1.new"
  mv "$1.new" "$1"
  shift 2
done

for module in $modules; do
  [ -d "/sys/module/$module" ] || modprobe "$module" ||
    die "the kernel $(uname -r) has no module $module; install the kernel's further modules (Ubuntu:" \
      "linux-modules-extra-$(uname -r)), or leave the module out of pyrdma_modules"
done

if [ "$huge_pages" -gt "$(cat $pages)" ]; then
  echo "$huge_pages" >$pages
  [ "$(cat $pages)" -ge "$huge_pages" ] ||
    die "the kernel gave $(cat $pages) of $huge_pages huge pages; reboot the host, which makes them at" \
      "boot, or set a smaller pyrdma_huge_pages"
fi

if [ -n "$governor" ]; then
  [ -e $governors ] || die "this host has no governor to set; leave pyrdma_governor empty"
  for file in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do
    echo "$governor" >"$file" || die "there is no governor $governor; there are" \
      "$(cat "${file%/*}/scaling_available_governors")"
  done
fi
if [ -n "$clock_source" ]; then
  echo "$clock_source" >$clock || die "there is no clock source $clock_source; there are" \
    "$(cat ${clock%/*}/available_clocksource)"
fi
