# Runs several commands in one boot of a guest. Each line of $PYRDMA_SHARE/batch is `NAME COMMAND...`;
# its output goes to NAME.log, its status to NAME.status. The script ends with status 42, which shows
# that it has run all commands.
# shellcheck shell=sh
limit=$1
while read -r name command; do
  started=$(cut -d . -f 1 /proc/uptime)
  timeout -k 5 "$limit" sh -c "$command" >"$PYRDMA_SHARE/$name.log" 2>&1 </dev/null
  status=$?
  echo "$name: status $status, $(($(cut -d . -f 1 /proc/uptime) - started)) s"
  echo "$status" >"$PYRDMA_SHARE/$name.status"
done <"$PYRDMA_SHARE/batch"
exit 42
