#!/bin/sh
# nqrustroot CARD nqrust:URL: called by dracut's netroot once a card is up. Fetches the OS image into memory, going on
# where a transfer broke off, and hands it over only if its SHA-256 is that of nqrust.rootfs=. The release manifest, by which it is
# opened, and its signatures are fetched from beside it.

command -v getarg > /dev/null || . /lib/dracut-lib.sh

url="${2#nqrust:}"
expected="$(getarg nqrust.rootfs=)"
expected="${expected#sha256:}"
# As with livenet, in the initial RAM file system, which has all of the memory.
image="${NQRUST_IMAGE:-/tmp/nqrust-medium/rootfs.squashfs}"

mkdir -p "${image%/*}"
# Another card has come up meanwhile.
[ -e "$image.begun" ] && exit 0
: > "$image.begun"

proxy="$(getarg proxy=)"
# Who answers does not matter where the digest does, so a server with an authority of its own will do.
set -- --globoff --location --fail --silent --show-error --insecure --connect-timeout 15
# A server that stalls is asked again.
set -- "$@" --speed-limit 1024 --speed-time 30
[ -n "$proxy" ] && set -- "$@" --proxy "$proxy"

info "nqrust: fetching the OS image from $url"
attempt=0
damaged=0
while :; do
    attempt=$((attempt + 1))
    curl "$@" --continue-at - --output "$image" -- "$url"
    status=$?
    found=none
    # 22 is also what a server says that has nothing to add to a file that is whole.
    if [ "$status" -eq 0 ] || [ "$status" -eq 22 ]; then
        [ -e "$image" ] && found="$(sha256sum < "$image")"
        found="${found%% *}"
        [ "$found" = "$expected" ] && break
    fi
    # What has come is of no use if it is another file (0), or if the server cannot go on in the middle (33).
    if [ "$status" -eq 0 ] || [ "$status" -eq 33 ]; then
        rm -f "$image"
    fi
    if [ "$status" -eq 0 ]; then
        damaged=$((damaged + 1))
        warn "nqrust: the OS image from $url has the SHA-256 $found and not $expected"
        [ "$damaged" -ge 2 ] && die "The OS image from $url is not the one that this boot is for."
    fi
    [ "$attempt" -ge "${NQRUST_ATTEMPTS:-200}" ] && die "The OS image cannot be fetched from $url."
    sleep "${NQRUST_PAUSE:-3}"
done
info "nqrust: the OS image is the one that this boot is for"
beside() {
    curl "$@" --retry 5 --max-filesize 16777216 --output "${image%/*}/$name" -- "${url%/*}/$name"
}
name=release.json
beside "$@" || die "${url%/*}/$name cannot be fetched, by which the OS image is opened."
# An unsigned release has none.
name=release.json.minisig
beside "$@" || rm -f "${image%/*}/$name"

exec "${NQRUST_NEXT:-/sbin/dmsquash-live-root}" "$image"
