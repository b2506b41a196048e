#!/bin/sh
# Run by dracut's cmdline hook: the kernel that starts in place of a crashed one has no root file system, and dracut would stop for that.
# It waits for the partition with nqrust.crash=, so that an array which lacks a disk is started without it in time.

nqrust_crash="$(getarg nqrust.crash=)"
if [ -n "$nqrust_crash" ]; then
    # Read by dracut's own scripts, which this is a part of.
    # shellcheck disable=SC2034
    root=nqrust-crash rootok=1
    case "$nqrust_crash" in
        PARTUUID=*) nqrust_device="/dev/disk/by-partuuid/${nqrust_crash#PARTUUID=}" ;;
        *) nqrust_device="$nqrust_crash" ;;
    esac
    # shellcheck disable=SC2154  # of dracut
    nqrust_finished="$hookdir/initqueue/finished"
    mkdir -p "$nqrust_finished"
    echo "[ -e '$nqrust_device' ]" > "$nqrust_finished/nqrust-crash.sh"
fi
