#!/bin/sh
# nqrust-root-generator NORMAL EARLY LATE: a generator of units (systemd.generator(7)). The root file system of an installed node
# is the device that nqrust-root.service makes of its slot, so that every read is checked. root= names only the slot. What is in
# EARLY goes before the unit that systemd makes of root=.

read -r nqrust_line < "${NQRUST_COMMAND_LINE:-/proc/cmdline}"
case " $nqrust_line " in
    *" nqrust.slot="*) ;;
    *) exit 0 ;;
esac

cat > "$2/sysroot.mount" << 'UNIT'
[Unit]
Description=The node's OS image
DefaultDependencies=no
Requires=nqrust-root.service
After=nqrust-root.service
Before=initrd-root-fs.target

[Mount]
What=/dev/mapper/nqrust-root
Where=/sysroot
Type=squashfs
Options=ro
UNIT

# Disks may take longer to come, or an array wait for one that is missing, than systemd waits for a device (90 seconds). How long they
# may take is dracut's to say (rd.retry), as it is for the device of root=; nqrust-root.service says why it makes none.
wait="$2/"'dev-mapper-nqrust\x2droot.device.d'
mkdir -p "$wait"
cat > "$wait/timeout.conf" << 'UNIT'
[Unit]
JobTimeoutSec=infinity
JobRunningTimeoutSec=infinity
UNIT
