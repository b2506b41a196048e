#!/bin/bash
# Stands in for systemctl on nodes that are namespaces: it starts and stops units as their files say, without a systemd.
# It knows what the units of a node use, and what the installer, kubeadm and the tests ask for.
set -u
state=/run/units
mkdir -p "$state" /var/log/units

# The file of a unit; /etc comes first.
unit_file() {
  local directory
  for directory in /etc/systemd/system /usr/lib/systemd/system; do
    if [ -e "$directory/$1" ]; then echo "$directory/$1"; return; fi
  done
  return 1
}

# The values of a key in a unit and its drop-ins, a line each, with continued lines joined.
values() {
  cat "$(unit_file "$1")" /usr/lib/systemd/system/"$1".d/*.conf /etc/systemd/system/"$1".d/*.conf 2>/dev/null |
    sed -e ':again' -e '/\\$/{N;s/\\\n//;b again' -e '}' | sed -n "s/^$2=//p"
}
last() { values "$1" "$2" | tail -n 1; }

conditions_hold() {
  local path
  while read -r path; do [ -e "$path" ] || return 1; done < <(values "$1" ConditionPathExists)
  while read -r path; do [ -s "$path" ] || return 1; done < <(values "$1" ConditionFileNotEmpty)
  local command
  while read -r command; do $command >>"/var/log/units/$1.log" 2>&1 || return 1; done < <(values "$1" ExecCondition)
}

# Runs the main process of a unit, again and again if the unit says so.
supervise() {
  local unit=$1 command file pid code restart pause
  while conditions_hold "$unit"; do
    command=$(values "$unit" ExecStart)
    (
      set -f
      while read -r file; do . "${file#-}" 2>/dev/null; done < <(values "$unit" EnvironmentFile)
      # Variables become as many words as they have, as systemd has it; quotes within them are none.
      eval "words=($command)"
      exec "${words[@]}"
    ) >>"/var/log/units/$unit.log" 2>&1 </dev/null &
    pid=$!
    echo "$pid" >"$state/$unit.main"
    wait "$pid"
    code=$?
    rm -f "$state/$unit.main"
    echo "$(date +%T) $unit ended with $code" >>"/var/log/units/$unit.log"
    if [ -e "$state/$unit.stop" ]; then break; fi
    if [ "$code" = 0 ] && [ "$(last "$unit" Type)" = oneshot ]; then touch "$state/$unit.done"; break; fi
    restart=$(last "$unit" Restart)
    if [ "$restart" != always ] && { [ "$restart" != on-failure ] || [ "$code" = 0 ]; }; then break; fi
    pause=$(last "$unit" RestartSec)
    sleep "${pause:-0.1}" &
    echo $! >"$state/$unit.pause"
    wait $!
    rm -f "$state/$unit.pause"
    if [ -e "$state/$unit.stop" ]; then break; fi
  done
  rm -f "$state/$unit.supervisor"
}

alive() { [ -s "$state/$1" ] && kill -0 "$(cat "$state/$1")" 2>/dev/null; }

start() {
  if alive "$1.supervisor" || [ -e "$state/$1.done" ]; then return 0; fi
  if [ "$(readlink "/etc/systemd/system/$1")" = /dev/null ]; then
    echo "Failed to start $1: Unit $1 is masked." >&2; return 1
  fi
  unit_file "$1" >/dev/null || { echo "Failed to start $1: Unit $1 not found." >&2; return 5; }
  rm -f "$state/$1.stop"
  setsid "$0" supervise "$1" >/dev/null 2>&1 </dev/null &
  echo $! >"$state/$1.supervisor"
}

stop() {
  local attempt
  rm -f "$state/$1.done"
  touch "$state/$1.stop"
  for attempt in $(seq 300); do
    alive "$1.supervisor" || break
    # The main process may be starting just now.
    if [ "$attempt" -gt 200 ]; then signal=KILL; else signal=TERM; fi
    for process in main pause; do alive "$1.$process" && kill -s $signal "$(cat "$state/$1.$process")" 2>/dev/null; done
    sleep 0.1
  done
  rm -f "$state/$1.supervisor" "$state/$1.stop"
}

is_active() {
  if [ -e "$state/$1.done" ]; then echo active; return 0; fi
  # A unit that does one thing becomes active with its end.
  if alive "$1.main" && [ "$(last "$1" Type)" != oneshot ]; then echo active; return 0; fi
  if alive "$1.supervisor"; then echo activating; else echo inactive; fi
  return 3
}

# What systemd shows of a unit to the installer, whichever properties are asked for.
show() {
  local active load=loaded sub
  if [ "$(readlink "/etc/systemd/system/$1")" = /dev/null ]; then load=masked
  elif ! unit_file "$1" >/dev/null; then load=not-found; fi
  active=$(is_active "$1")
  case $active in
    active) sub=running ;;
    activating) if alive "$1.pause"; then sub=auto-restart; else sub=start; fi ;;
    *) sub=dead ;;
  esac
  printf '%s\n' "LoadState=$load" "ActiveState=$active" "SubState=$sub" Result=success NRestarts=0
}

is_enabled() {
  if [ "$(readlink "/etc/systemd/system/$1")" = /dev/null ]; then echo masked; return 1; fi
  for link in /etc/systemd/system/*.wants/"$1"; do
    if [ -L "$link" ]; then echo enabled; return 0; fi
  done
  echo disabled
  return 1
}

# A restart is made by whoever runs the node, who looks for this file.
restart() { touch "$state/restart"; }

words=()
for word; do case $word in --*) ;; *) words+=("$word") ;; esac; done
verb=${words[0]-} code=0
if [ "$verb" = reboot ]; then restart; exit; fi
for unit in "${words[@]:1}"; do
  case $unit in *.*) ;; *) unit=$unit.service ;; esac
  case $verb in
    start) start "$unit" ;;
    stop) stop "$unit" ;;
    restart) stop "$unit"; start "$unit" ;;
    reload-or-restart) if alive "$unit.main"; then kill -HUP "$(cat "$state/$unit.main")"; else start "$unit"; fi ;;
    supervise) supervise "$unit" ;;
    is-active) is_active "$unit" ;;
    is-enabled) is_enabled "$unit" ;;
    show) show "$unit" ;;
    enable | disable | reset-failed) ;;
    *) echo "systemctl stand-in: $verb is unknown" >&2; exit 1 ;;
  esac || code=$?
done
exit $code
