#!/bin/bash
# Stands in for journalctl on nodes that are namespaces: the last lines of each unit that is asked for, whenever they were written.
set -u
lines=1000 units=()
while [ $# -gt 0 ]; do
  case $1 in
    --unit) units+=("$2"); shift ;;
    --lines) lines=$2; shift ;;
    --output | --since) shift ;;
  esac
  shift
done
for unit in "${units[@]}"; do tail -q -n "$lines" "/var/log/units/$unit.log" 2>/dev/null; done
exit 0
