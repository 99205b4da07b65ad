# Removes what site.yml and run.yml have made on a host, and prints each thing. Packages stay, and loaded modules.
#
#   sh -s -- CHECK REMOVE_RESULTS HUGE_PAGES PATH...
#
# With CHECK=yes it removes nothing. /etc/pyrdma/before has the kernel's settings before site.yml.
set -eu
PATH=$PATH:/usr/sbin:/sbin
check=$1 results=$2 huge_pages=$3
shift 3
governors=/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
clock=/sys/devices/system/clocksource/clocksource0/current_clocksource
pages=/proc/sys/vm/nr_hugepages
unit=/etc/systemd/system/pyrdma-daemon.service

act() { # act TEXT COMMAND...
  echo "$1"
  shift
  [ "$check" = yes ] || "$@"
}
put() { for file in $2; do echo "$1" >"$file"; done; } # put TEXT FILES
before() { sed -n "s/^$1=//p" /etc/pyrdma/before 2>/dev/null || true; }
run() { # a transient unit that has failed is loaded until it is reset
  systemctl stop pyrdma-run.service
  systemctl reset-failed pyrdma-run.service 2>/dev/null || true
}
units() {
  systemctl --quiet disable --now pyrdma-daemon.service
  rm -f $unit
  systemctl daemon-reload
}

if [ -d /run/systemd/system ]; then
  if [ "$(systemctl show --property=ActiveState --value pyrdma-run.service)" != inactive ]; then
    act "the run" run
  fi
  if [ -e $unit ]; then act "the daemon" units; fi
fi

for path in "$@" /opt/pyrdma; do
  if [ -e "$path" ]; then act "$path" rm -rf "$path"; fi
done

# Another program may have changed a setting since; its value stays.
old=$(before huge_pages)
if [ -n "$old" ] && [ "$old" -lt "$huge_pages" ] && [ "$(cat $pages)" = "$huge_pages" ]; then
  act "$huge_pages huge pages, back to $old" put "$old" $pages
fi
old=$(before governor)
if [ -n "$old" ] && [ "$(cat $governors)" != "$old" ]; then
  act "the governor, back to $old" put "$old" '/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor'
fi
old=$(before clock_source)
if [ -n "$old" ] && [ "$(cat $clock)" != "$old" ]; then
  act "the clock source, back to $old" put "$old" $clock
fi

if [ -e /etc/pyrdma ]; then act /etc/pyrdma rm -rf /etc/pyrdma; fi
if [ -d /var/lib/pyrdma ]; then
  if [ "$results" = yes ]; then
    act /var/lib/pyrdma rm -rf /var/lib/pyrdma
  elif [ "$check" != yes ]; then
    rmdir /var/lib/pyrdma 2>/dev/null || true # stays if it has results
  fi
fi
