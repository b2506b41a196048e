#!/bin/bash
# dracut module: opens the OS image by its hashes, mounts the partitions of an installed node before the real system starts, and
# fetches the OS image of a system that boots from the network.
# The builder adds the program that opens the image; the rest is done by that in the image. This only places the units.

check() {
    return 0
}

depends() {
    echo systemd livenet dm
}

installkernel() {
    instmods ext4 overlay squashfs iso9660 loop dm-verity
    # Every watchdog; dracut's own module takes that of the machine which makes the initrd. udev loads the one that is there, on
    # Intel's once the bus or the bridge that has it is known (iTCO_wdt).
    instmods "=drivers/watchdog" i2c-i801 lpc_ich
    # Disks over the network: what the firmware says of them, the protocols, and VLANs of their cards.
    instmods iscsi_ibft iscsi_tcp nvme-tcp 8021q
}

install() {
    # shellcheck disable=SC2154  # moddir, initdir and the directories of systemd are dracut's
    inst_simple "$moddir/nqrust-root.service" "$systemdsystemunitdir/nqrust-root.service"
    # shellcheck disable=SC2154  # the same
    inst_script "$moddir/root-generator.sh" "$systemdutildir/system-generators/nqrust-root-generator"
    inst_simple "$moddir/nqrust-boot.service" "$systemdsystemunitdir/nqrust-boot.service"
    inst_simple "$moddir/live.conf" /usr/lib/tmpfiles.d/nqrust-live.conf
    # Without dracut's module `watchdog`, which stops the watchdog where a boot fails: systemd goes on to answer it there too.
    inst_simple "$moddir/watchdog.conf" /usr/lib/systemd/system.conf.d/10-nqrust-watchdog.conf
    for nqrust_unit in nqrust-trial.timer nqrust-trial.service; do
        inst_simple "$moddir/$nqrust_unit" "$systemdsystemunitdir/$nqrust_unit"
    done
    # After livenet's own (29), which reads root=.
    inst_hook cmdline 35 "$moddir/parse-rootfs.sh"
    # For the start in place of a crashed kernel. Where the base has no makedumpfile, no node loads a kernel for that.
    inst_simple "$moddir/nqrust-crash-dump.service" "$systemdsystemunitdir/nqrust-crash-dump.service"
    inst_hook cmdline 37 "$moddir/parse-crash.sh"
    inst_multiple -o makedumpfile
    inst_multiple prlimit umount
    inst_script "$moddir/nqrustroot.sh" /sbin/nqrustroot
    # It has come with dracut's own module, which is before this one.
    rm -f "$initdir/sbin/dmsquash-live-root" "$initdir/usr/sbin/dmsquash-live-root"
    inst_script "$moddir/live-root.sh" /sbin/dmsquash-live-root
    # After what dracut itself puts there. Which of the two is run depends on where the boot ends.
    inst_hook emergency 99 "$moddir/say-why.sh"
    inst_hook shutdown-emergency 99 "$moddir/say-why.sh"
    inst_multiple curl journalctl cat losetup rm sed sha256sum sleep
    # dracut's own module is there where the base has multipath-tools.
    if dracut_module_included multipath; then
        inst_multipath
    fi
    # The base has networkd with its user.
    if [ -e "$dracutsysrootdir$systemdutildir/systemd-networkd" ]; then
        inst_network_disks
    fi
    $SYSTEMCTL -q --root "$initdir" add-requires initrd-root-fs.target nqrust-boot.service
    $SYSTEMCTL -q --root "$initdir" add-wants sysinit.target nqrust-trial.timer
    $SYSTEMCTL -q --root "$initdir" add-requires initrd-root-fs.target nqrust-crash-dump.service
}

# Disks over the network: dracut's module iscsi has passwords on the kernel command line, and gives up after some attempts. The
# installer reaches them with what the boot loader brings and the firmware says. Only a node with such disks starts the unit.
inst_network_disks() {
    inst_multiple modprobe udevadm
    # shellcheck disable=SC2154  # dracut's
    inst_multiple "$systemdutildir/systemd-networkd" "$systemdsystemunitdir/systemd-networkd.service"
    inst_multiple -o "$systemdsystemunitdir/systemd-networkd.socket"
    for nqrust_file in passwd group; do
        grep -q '^systemd-network:' "$initdir/etc/$nqrust_file" 2> /dev/null \
            || grep '^systemd-network:' "$dracutsysrootdir/etc/$nqrust_file" >> "$initdir/etc/$nqrust_file"
    done
    # NVMe over TCP needs no program; of iSCSI the kernel knows only what follows a login. Records of targets are in the one place or in
    # the other.
    if find_binary iscsiadm > /dev/null; then
        inst_multiple iscsiadm iscsid
        mkdir -p "$initdir/etc/iscsi" "$initdir/var/lib/iscsi"
    fi
    inst_simple "$moddir/nqrust-connect-disks.service" "$systemdsystemunitdir/nqrust-connect-disks.service"
    $SYSTEMCTL -q --root "$initdir" add-wants sysinit.target nqrust-connect-disks.service
}

# Disks with several paths: what dracut's module multipath leaves out. It knows neither the names of Debian's rules nor what those run.
# Only a node that names such disks on its kernel command line has the rules in effect, and starts multipathd.
inst_multipath() {
    inst_simple "$moddir/multipathd.conf" "$systemdsystemunitdir/multipathd.service.d/10-nqrust.conf"
    # In the place of a file that dracut wrote, or of one that the base has.
    rm -f "$initdir/etc/multipath.conf"
    inst_simple "$moddir/multipath.conf" /etc/multipath.conf
    # The order of their names is that of udev's own rules.
    for nqrust_rule in 56-dm-mpath 56-dm-parts 60-multipath 60-kpartx 68-del-part-nodes 99-z-dm-mpath-late; do
        nqrust_file="/usr/lib/udev/rules.d/$nqrust_rule.rules"
        [ ! -e "$nqrust_file" ] || inst_simple "$nqrust_file" "/usr/lib/nqrust/multipath/$nqrust_rule.rules"
    done
    inst_multiple cp partx
    inst_multiple -o /usr/lib/udev/kpartx_id logger
    inst_hook cmdline 36 "$moddir/multipath.sh"
    # It looks for maps at the end of the initrd, which takes time where there can be none.
    find "$initdir" -name '*-multipathd-needshutdown.sh' \
        -exec sed -i '2i [ -n "$(getarg nqrust.multipath=)" ] || return 0' {} +
}
