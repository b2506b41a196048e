#!/usr/bin/env bash
# Starts a virtual machine from a medium, for `make run`.
#
#   run.sh ISO-BUILDER ISO DIRECTORY [CONFIGURATION]
#
# With CONFIGURATION a copy of the ISO installs a new disk without a question. Each minute a line says how far the machine is,
# until its node is ready; the machine then runs on, or ends where nobody is at the terminal. Without CONFIGURATION a person
# answers the questions, and the disk stays. ACCEL and OVMF are those of the Makefile.
#
# The machine ends where it would restart after the install, and is started again, since emulation differs for both. An API server
# and what asks it wait for each other until they give up if all processors share a thread of the host. With a thread for each,
# QEMU 7.2 can miss that a kernel changes its own code, which then panics: a node starts again by itself, an install would not.
set -euo pipefail
builder=$1 iso=$2 directory=$3 configuration=${4-}
# Far more than an emulated machine takes on a host without other work.
minutes_max=60
serial=$directory/serial.log

fail() {
  printf 'error: %s\n  next: %s\n' "$1" "$2" >&2
  exit 1
}

mkdir -p "$directory"
# Every flush of an emulated control plane would wait for the disk of this host; the disk is for a trial.
[ -z "$configuration" ] || rm -f "$directory"/{disk.qcow2,variables.fd,uuid,installed}
[ -e "$directory/disk.qcow2" ] || qemu-img create -q -f qcow2 "$directory/disk.qcow2" 300G
[ -e "$directory/variables.fd" ] || cp "$OVMF/OVMF_VARS_4M.fd" "$directory/variables.fd"
# Machines have a UUID, and a node is known by it.
[ -e "$directory/uuid" ] || cat /proc/sys/kernel/random/uuid >"$directory/uuid"
if [ -n "$configuration" ]; then
  "$builder" --quiet customize "$iso" --config "$configuration" --output "$directory/trial.iso"
  iso=$directory/trial.iso
fi
display=none
[ -z "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ] || display=gtk

# With less room for translated code than these MiB, the programs of Kubernetes push each other's translations out.
installing=$ACCEL running=$ACCEL
[ "$ACCEL" != tcg ] || installing=tcg,thread=single,tb-size=512 running=tcg,thread=multi,tb-size=512

# ERMS and FSRM let a kernel copy byte by byte, which is slow where it is emulated.
machine=(qemu-system-x86_64 -machine q35 -cpu max,-erms,-fsrm -m 4096 -smp 2 -vga std -display "$display"
  -drive "if=pflash,format=raw,readonly=on,file=$OVMF/OVMF_CODE_4M.fd"
  -drive "if=pflash,format=raw,file=$directory/variables.fd"
  -uuid "$(cat "$directory/uuid")"
  -drive "if=none,id=disk,format=qcow2,file=$directory/disk.qcow2,cache=unsafe" -device virtio-blk-pci,drive=disk,bootindex=1
  -drive "if=none,id=medium,media=cdrom,readonly=on,format=raw,file=$iso" -device ide-cd,drive=medium,bootindex=2
  -nic user,model=virtio-net-pci,mac=52:54:00:12:34:56,hostfwd=tcp:127.0.0.1:2222-:22)

if [ -z "$configuration" ]; then
  [ -e "$directory/installed" ] || {
    "${machine[@]}" -accel "$installing" -no-reboot -serial mon:stdio
    read -r -p 'The machine has ended. Is it installed, and does it start from its disk now? [Y/n] ' answer
    [[ $answer != [nN]* ]] || exit 0
    touch "$directory/installed"
  }
  exec "${machine[@]}" -accel "$running" -serial mon:stdio
fi

rm -f "$serial"
qemu=
trap 'kill "$qemu" 2>/dev/null || true' EXIT
start() {
  "${machine[@]}" -accel "$@" -chardev "file,id=serial,path=$serial,append=on" -serial chardev:serial &
  qemu=$!
}
start "$installing" -no-reboot

# What the serial console shows, in lines without control sequences.
shown() {
  sed -E 's/\x1b\[[0-9;?!]*[A-Za-z]//g; s/[\r\x1b]//g' "$serial" 2>/dev/null || true
}

# Whether the console has shown this. It is read to its end: a reader that ends early would fail the pipe.
has_shown() {
  shown | grep -aE "$1" >/dev/null
}

# The last line that says how far the install or the node is.
progress() {
  shown | grep -aE '^ *[0-9]+ % |^\[(\.\.\.\.| ok )\] |^\[[x !]\] network|^Loading |^Booting |Ready in its cluster at' | tail -n 1 |
    sed -E 's/^\[(\.\.\.\.| ok )\] //; s/^ +//'
}

printf 'the machine runs; its serial console is in %s\n' "$serial"
for ((second = 1; ; second++)); do
  sleep 1
  kill -0 "$qemu" 2>/dev/null || {
    if [ -e "$directory/installed" ] || ! has_shown 'Installation complete'; then
      fail 'the machine has ended' "Its last words are in $serial, and QEMU's above."
    fi
    touch "$directory/installed"
    start "$running"
  }
  if ((second % 5 == 0)); then
    ! has_shown 'Ready in its cluster at' || break
    ! has_shown '^error: ' || {
      shown | grep -aE -A 6 '^error: ' | tail -n 7 >&2
      fail 'the install has failed' "The whole of it is in $serial."
    }
  fi
  if ((second % 60 == 0)); then
    printf '%3d min  %s\n' $((second / 60)) "$(progress)"
    ((second / 60 < minutes_max)) || fail "the node is not ready after $minutes_max minutes" "See $serial, or log in: ssh -p 2222 rancher@127.0.0.1"
  fi
done
printf 'READY after %d:%02d min. Log in: ssh -p 2222 rancher@127.0.0.1 (password: trial)\n' $((second / 60)) $((second % 60))
[ -t 0 ] || exit 0
printf 'Ctrl+C ends the machine and throws it away.\n'
wait "$qemu"
