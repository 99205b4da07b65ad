# Writes the daemon's unit, starts it now and at boot, and prints `changed: ...` for each change.
#
#   sh -s -- CHECK RESTART TEXT
#
# With CHECK=yes it changes nothing. RESTART=yes restarts a daemon whose token or release is new.
set -eu
umask 022
check=$1 restart=$2 text=$3
unit=/etc/systemd/system/pyrdma-daemon.service

act() { # act TEXT COMMAND...
  echo "changed: $1"
  shift
  [ "$check" = yes ] || "$@"
}
write() {
  printf '%s\n' "$text" >$unit.new
  mv $unit.new $unit
  systemctl daemon-reload
}

if [ "$(cat $unit 2>/dev/null)" != "$text" ]; then
  act "the unit" write
  restart=yes
fi
systemctl --quiet is-enabled pyrdma-daemon.service 2>/dev/null ||
  act "at boot" systemctl --quiet enable pyrdma-daemon.service
if [ "$restart" = yes ] || ! systemctl --quiet is-active pyrdma-daemon.service; then
  act "restarted" systemctl restart pyrdma-daemon.service
fi
