#!/bin/sh
# Run by dracut's cmdline hook, before udev starts: a node names its disks with several paths in nqrust.multipath=WWID,WWID. multipathd
# takes them whether all of their paths are there or only one, and udev's rules keep everything else from their single paths.

nqrust_wwids="$(getarg nqrust.multipath=)"
if [ -n "$nqrust_wwids" ]; then
    nqrust_root="${NQRUST_ROOT:-}"
    mkdir -p "$nqrust_root/etc/multipath" "$nqrust_root/etc/udev/rules.d"
    for nqrust_wwid in $(echo "$nqrust_wwids" | sed 's/,/ /g'); do
        echo "/$nqrust_wwid/"
    done > "$nqrust_root/etc/multipath/wwids"
    cp "$nqrust_root"/usr/lib/nqrust/multipath/*.rules "$nqrust_root/etc/udev/rules.d/"
fi
