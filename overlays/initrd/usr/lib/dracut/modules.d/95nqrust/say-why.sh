#!/bin/sh
# Sourced by dracut's emergency and shutdown-emergency hooks when a boot ends in the initrd: says on every console which
# unit has failed and with which words, and leaves it there for a minute. There is no shell (rd.shell=0), so that otherwise
# an installed node would restart, and a live system halt, before anybody could read why.

if [ -z "$nqrust_said_why" ] && ! getargbool 1 rd.shell; then
    nqrust_said_why=1
    nqrust_report=/run/nqrust-boot-failed
    nqrust_wait="${NQRUST_WAIT:-60}"
    {
        echo
        echo "THIS MACHINE CANNOT START: the boot failed before its system ran."
        systemctl list-units --failed --no-legend --plain | while read -r nqrust_unit _; do
            echo
            echo "$nqrust_unit has failed:"
            journalctl --boot --no-pager --quiet --output cat --lines 12 --unit "$nqrust_unit"
        done
        # What dracut's own hooks know, such as a disk that did not come.
        source_hook emergency
        echo
        # A damaged OS image is repaired here, so that the next start succeeds.
        "${NQRUST_INSTALLER:-/usr/bin/installer}" --progress plain root repair
        case "$(getarg rd.emergency)" in
            reboot) echo "It starts again in $nqrust_wait seconds." ;;
            *) echo "It stops in $nqrust_wait seconds." ;;
        esac
    } > "$nqrust_report" 2>&1
    while read -r nqrust_console _; do
        [ -e "/dev/$nqrust_console" ] || continue
        # Terminals want a carriage return with each line.
        sed 's/$/\r/' "$nqrust_report" > "/dev/$nqrust_console" 2> /dev/null
    done < "${NQRUST_CONSOLES:-/proc/consoles}"
    sleep "$nqrust_wait"
fi
