#!/bin/sh
# Run by dracut's cmdline hook, after livenet has read root=. An OS image from the network whose digest is on the kernel
# command line is left to /sbin/nqrustroot, which checks it; livenet's own handler checks nothing.

case "$netroot" in
    livenet:http://* | livenet:https://*)
        if [ -n "$(getarg nqrust.rootfs=)" ]; then
            netroot="nqrust:${netroot#livenet:}"
        fi
        ;;
esac
