# Prints what site.yml must know of a host, as lines KEY=VALUE. It changes nothing, and needs no Python.
#
#   sh -s -- PYTHON PACKAGES MODULES [PATH DIGEST]...
#
# PACKAGES and MODULES are words in one argument. DIGEST is the SHA-256 that the file PATH should have.
LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
export LC_ALL PATH
python=$1 packages=$2 modules=$3
shift 3

first() { head -n 1 "$1" 2>/dev/null; }

missing=
for package in $packages; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)
  [ "$status" = "install ok installed" ] && continue
  # An interpreter from elsewhere will do.
  [ "$package" = python3 ] && command -v "$python" >/dev/null && continue
  missing="$missing $package"
done
unloaded=
for module in $modules; do
  [ -d "/sys/module/$module" ] || unloaded="$unloaded $module"
done
differs=
while [ $# -gt 0 ]; do
  found=$(sha256sum "$1" 2>/dev/null)
  [ "${found%% *}" = "$2" ] || differs="$differs $1"
  shift 2
done
# timedatectl would start a service to answer.
synchronised=
if [ -e /run/systemd/timesync/synchronized ]; then
  synchronised=yes
elif command -v chronyc >/dev/null; then
  synchronised=$(chronyc -n tracking 2>/dev/null | grep -q 'Leap status.*Normal' && echo yes || echo no)
fi
opt=/opt
[ -d $opt ] || opt=/

echo "user=$(id -u)"
echo "machine=$(uname -m)"
echo "kernel=$(uname -r)"
echo "libc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d ' ' -f 2)"
echo "python=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)"
echo "apt=$(command -v apt-get)"
echo "missing=${missing# }"
echo "unloaded=${unloaded# }"
echo "differs=${differs# }"
echo "huge_pages=$(first /proc/sys/vm/nr_hugepages)"
echo "free_mb=$(df -Pm $opt | awk 'NR == 2 { print $4 }')"
echo "release=$(readlink /opt/pyrdma/current)"
echo "releases=$(ls /opt/pyrdma 2>/dev/null | tr '\n' ' ')"
echo "systemd=$([ -d /run/systemd/system ] && echo yes || echo no)"
echo "governor=$(first /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor)"
echo "clock_source=$(first /sys/devices/system/clocksource/clocksource0/current_clocksource)"
echo "synchronised=$synchronised"
