# The first process of a host of the test bed: bed.py starts it in new namespaces.
#
#   sh host.sh FOLDER NAME DISK INIT [SHOWN...]
#
# It makes an overlay root over /, waits for the commands of `ip` on standard input, and then keeps sshd.
# With an INIT, which is systemd's program, it becomes systemd, which keeps sshd.
# All that the host writes lies in a tmpfs of DISK bytes, which the kernel frees with the namespaces.
# The host sees the folders SHOWN, read-only, even where its own /tmp hides them.
# FOLDER/etc holds files for the host's /etc, made by bed.py.
set -eu

folder=$1 name=$2 disk=$3 init=$4
shift 4

echo "$name" >/proc/sys/kernel/hostname
mkdir "$folder/$name"
mount -t tmpfs -o "mode=755,size=$disk" tmpfs "$folder/$name"
cd "$folder/$name"
mkdir upper work root
# A tmpfs holds the upper layer, since an overlay over / cannot hold it itself.
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root
cd root

# The files of the machine in these folders are none of the host's business.
mount -t tmpfs -o mode=1777,size=64m tmpfs tmp
mount -t tmpfs -o mode=755,size=64m tmpfs run
# The start-up files of the machine's root would run in each session.
mount -t tmpfs -o mode=700,size=64m tmpfs root
rm -rf opt/pyrdma var/lib/pyrdma
mkdir -p run/sshd run/lock

mount -t proc proc proc
# The machine's kernel settings stay as they are. The huge pages of a host are a file.
echo 0 >run/nr_hugepages
mount --bind proc/sys proc/sys
mount --bind run/nr_hugepages proc/sys/vm/nr_hugepages
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
if [ -n "$init" ]; then
  mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
  mount -t cgroup2 cgroup2 sys/fs/cgroup
fi
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/shm dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for device in null zero full random urandom tty; do
  touch "dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
if [ -d /dev/infiniband ]; then
  mkdir dev/infiniband
  mount --rbind /dev/infiniband dev/infiniband
fi

for shown; do
  mkdir -p ".$shown"
  mount --bind "$shown" ".$shown"
  mount -o remount,bind,ro ".$shown"
done

# What the host has written, for tests.
mkdir run/written
mount --bind ../upper run/written

cp -r "$folder/etc/." "$folder/etc-$name/." etc/
mkdir run/old
pivot_root . run/old
cd /
umount -l /run/old
rmdir /run/old

echo ready
ip -batch -
exec </dev/null
if [ -n "$init" ]; then
  echo listens
  exec env -i container=pyrdma-hosts "$init" --unit=hosts.target >/dev/null
fi
/usr/sbin/sshd -f /etc/ssh/hosts_sshd_config -E /var/log/sshd.log
echo listens
exec >/dev/null
# The first process of a host reaps the processes that others leave behind.
while :; do
  sleep infinity &
  wait
done
