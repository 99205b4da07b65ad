# Runs in the guest, in the host's file system: makes a Soft-RoCE device, runs the command.
# shellcheck shell=sh disable=SC1091
folder=$1
. "$folder/environment"
number=$(sed -n 's/.*softroce\.guest=\([0-9]\).*/\1/p' /proc/cmdline)
exec >/dev/ttyS1 2>&1 </dev/null
stty -F /dev/ttyS1 raw -echo 2>/dev/null
set -e
mkdir -p /dev/shm /dev/pts /run /tmp
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t devpts devpts /dev/pts
ulimit -l unlimited
hostname "guest$number"
ip link set lo up
interface=eth0
if [ ! -e /sys/class/net/eth0 ]; then # alone: loopback needs an interface, not a wire
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
cd "$(cat "$folder/directory")"
set +e
sh "$folder/command"
echo $? >"$folder/status.$number"
