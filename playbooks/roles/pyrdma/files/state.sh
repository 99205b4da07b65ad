# Prints the state of the run on this host: ended, failed, running or none, then what it runs and its status.
PATH=$PATH:/usr/sbin:/sbin
[ -d /run/systemd/system ] || { echo "no-systemd"; exit; }
[ -x /opt/pyrdma/current/bin/pyrdma ] || { echo "no-release"; exit; }
show() { systemctl show --property="$1" --value pyrdma-run.service; }
case $(show ActiveState)/$(show SubState) in
  active/exited) echo ended ;;
  failed/*) echo failed ;;
  inactive/*) echo none ;;
  *) echo running ;;
esac
show Description
show ExecMainStatus
journalctl --unit=pyrdma-run.service --lines=5 --output=cat --no-pager 2>/dev/null
