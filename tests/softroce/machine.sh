# Makes the networks and the Soft-RoCE device of a guest that boots a disk, and lets the user of run.sh log in.
# shellcheck shell=sh
set -e
control=/run/softroce
number=$(sed -n 's/.*softroce\.guest=\([0-9]\).*/\1/p' /proc/cmdline)
hostname "node-$number"
home=$(getent passwd root | cut -d : -f 6)
mkdir -p -m 700 "$home/.ssh"
cp "$control/key" "$home/.ssh/authorized_keys"
chmod 600 "$home/.ssh/authorized_keys"
# eth1 is QEMU's network, which reaches what this machine reaches.
ip address add 10.0.2.15/24 dev eth1
ip link set eth1 up
ip route add default via 10.0.2.2
echo nameserver 10.0.2.3 >/etc/resolv.conf
ip address add "10.99.0.$((number + 1))/24" dev eth0
ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0
: >"$control/ready.$number"
