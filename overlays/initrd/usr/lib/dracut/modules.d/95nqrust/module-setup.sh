#!/bin/bash
# dracut module: mounts an installed node's partitions before the real system starts.
# The program itself is in the OS image; this only places the unit that runs it.

check() {
    return 0
}

depends() {
    echo systemd
}

installkernel() {
    instmods ext4 overlay squashfs
}

install() {
    # shellcheck disable=SC2154  # moddir, initdir and systemdsystemunitdir are dracut's
    inst_simple "$moddir/nqrust-boot.service" "$systemdsystemunitdir/nqrust-boot.service"
    inst_simple "$moddir/live.conf" /usr/lib/tmpfiles.d/nqrust-live.conf
    $SYSTEMCTL -q --root "$initdir" add-requires initrd-root-fs.target nqrust-boot.service
}
