#!/bin/sh
# Makes the node's tree of files out of its parts and becomes its first process: as the firmware, the kernel and the initrd of a
# machine do. Runs in new namespaces, but still sees the files of the host.
#   start_node.sh DIRECTORY OS-LAYER DEBIAN-TREE INSTALLER ADDRESS GATEWAY DISK
# DISK is empty, or what the node sees of its disk (disk.rs).
# The control groups' file systems are a line each on standard input: directory, type and options.
set -eu
node=$1 layer=$2 debian=$3 installer=$4 address=$5 gateway=$6 disk=$7
root=$node/root
# /etc and whatever else is on the root file system is new at every boot; /var and /oem last.
rm -rf "$node/changes" "$node/work"
mkdir -p "$root" "$node/changes" "$node/work" "$node/oem" "$node"/var/lib "$node"/var/log "$node"/var/tmp "$node"/var/cache
ln -sfn /run "$node/var/run"
mount -t overlay overlay -o "lowerdir=$layer:$debian,upperdir=$node/changes,workdir=$node/work" "$root"
mkdir -p "$root/oem" "$root/boot" "$root/lib/modules"
mount --bind "$node/var" "$root/var"
mount --bind "$node/oem" "$root/oem"
# kubeadm reads how the kernel was built.
mount --bind /boot "$root/boot"
if [ -d /lib/modules ]; then mount --bind /lib/modules "$root/lib/modules"; fi
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
while read -r directory type options; do
  [ "$type" = tmpfs ] || mkdir -p "$root/sys/fs/cgroup/$directory"
  mount -t "$type" -o "$options" cgroup "$root/sys/fs/cgroup/$directory"
done
if [ -e "$root/sys/fs/cgroup/cgroup.controllers" ]; then
  mkdir "$root/sys/fs/cgroup/services"
  echo $$ >"$root/sys/fs/cgroup/services/cgroup.procs"
  sed 's/[a-z]*/+&/g' "$root/sys/fs/cgroup/cgroup.controllers" >"$root/sys/fs/cgroup/cgroup.subtree_control"
fi
if [ -n "$disk" ]; then
  mount --bind "$disk/cmdline" "$root/proc/cmdline"
  # Some kernels have no /sys/class/block, and a file system of the kernel takes no new directory.
  for class in "$root"/sys/class/*; do
    mkdir -p "$disk/class/${class##*/}"
    mount --bind "$class" "$disk/class/${class##*/}"
  done
  mkdir -p "$disk/class/block"
  mount --bind "$disk/block" "$disk/class/block"
  mount --rbind "$disk/class" "$root/sys/class"
  mkdir -p "$root/dev/disk" "$root/run/nqrust"
  mount --bind "$disk/links" "$root/dev/disk"
  rm -f "$root/run/nqrust/release.json.minisig"
  cp "$disk"/release.json* "$root/run/nqrust/"
  # The root file system is not the slot; the node is told that it is on its device.
  mountpoint -d "$root" >"$disk/block/$(cat "$disk/running")/dev"
fi
"$installer" apply --config "$root/oem/node.yaml" --root "$root"
hostname "$(cat "$root/etc/hostname")"
ip link set lo up
until ip link show mgmt-br >/dev/null 2>&1; do sleep 0.05; done
ip address add "$address/24" dev mgmt-br
ip link set mgmt-br up
ip route add default via "$gateway"
cd "$root"
mkdir -p mnt
mount --make-rprivate /
pivot_root . mnt
umount -l /mnt
mount --make-rshared /
# The network's own settings; those of all nodes are the host's.
sysctl --quiet --load /usr/lib/sysctl.d/51-kubeadm.conf
systemd-tmpfiles --create /usr/lib/tmpfiles.d/kubeadm.conf
mkdir -p /etc/kubernetes
mount --bind /var/lib/nqrust/kubernetes/etc /etc/kubernetes
touch /run/booted
exec tini -g -- sleep infinity
