#!/bin/sh
# dmsquash-live-root DEVICE|FILE: takes the place of dracut's program of this name, which checks nothing. Called once the medium of a
# live system is there, or nqrustroot has fetched its OS image. Mounts the image through the device that checks every read
# of it, where dracut's generator expects what is below the overlay.

command -v getarg > /dev/null || . /lib/dracut-lib.sh

medium=/run/initramfs/live
below="${NQRUST_BELOW:-/run/rootfsbase}"
if [ -f "$1" ]; then
    # The manifest is beside it.
    set -- --medium "${1%/*}" --image "$1"
else
    mkdir -m 0755 -p "$medium"
    mount -n -t iso9660 -o ro "$1" "$medium" || die "The medium in $1 cannot be mounted."
    set -- --medium "$medium"
fi
told="${NQRUST_TOLD:-/run/nqrust-root-opened}"
if ! "${NQRUST_INSTALLER:-/usr/bin/installer}" --progress plain root open "$@" > "$told" 2>&1; then
    # Not as words of `die`, which become part of a script.
    echo "cat $told" > "$hookdir/emergency/50-nqrust-root.sh"
    die "The OS image cannot be opened."
fi
info "$(cat "$told")"
mkdir -m 0755 -p "$below"
mount -n -t squashfs -o ro /dev/mapper/nqrust-root "$below" || die "The OS image cannot be read."
# What the live system needs to say anything else itself. It is read now or then.
for needed in "$below"/usr/lib/systemd/systemd "$below"/usr/lib/*/systemd/*.so "$below"/usr/bin/installer; do
    [ ! -e "$needed" ] || cat "$needed" > /dev/null || die "The OS image is damaged where the system starts."
done
# What dracut waits for.
ln -s null /dev/root
need_shutdown
