# Makes a Soft-RoCE device in the guest and runs the command, both in the host's file system.
# shellcheck shell=sh disable=SC1090
control=/dev/softroce
number=$(sed -n 's/.*softroce\.guest=\([0-9]\).*/\1/p' /proc/cmdline)
. "$control/environment.$number"
rm "$control/environment.$number" # the environment may hold secrets, and this run may be killed
: >"$control/booted.$number"
exec >/dev/ttyS1 2>&1 </dev/null
stty -F /dev/ttyS1 raw -echo 2>/dev/null
set -e
mkdir -p /tmp "${TMPDIR:-/tmp}"
ulimit -l unlimited
hostname "guest$number"
ip link set lo up
interface=eth0
if [ ! -e /sys/class/net/eth0 ]; then # a single guest: loopback needs an interface, not a wire
  ip link add d0 type dummy
  interface=d0
fi
ip address add "10.99.0.$((number + 1))/24" dev "$interface"
ip link set "$interface" up
rdma link add rxe0 type rxe netdev "$interface"
for _ in 1 2 3 4 5 6 7 8 9 10; do
  grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state && break
  sleep 0.2
done
export PYRDMA_GUEST="$number" PYRDMA_GUEST_INTERFACE="$interface" PYRDMA_TEST_VERBS=1
directory=$(cat "$control/directory")
set +e
if cd "$directory"; then
  sh "$control/command"
else
  echo "softroce: the guest has its own /dev, /run and /proc, so it has no $directory; run the command" \
    "from another folder, or from \$PYRDMA_SHARE"
  false
fi
echo $? >"$control/status.$number"
