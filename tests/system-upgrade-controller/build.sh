#!/usr/bin/env bash
# Builds system-upgrade-controller as the go.mod beside this file names it, and puts its manifests beside the program.
#
#   build.sh DIRECTORY    makes DIRECTORY unless it is there
#
# Needs Go 1.26 or later.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$1 module=github.com/rancher/system-upgrade-controller

mkdir -p "$(dirname "$out")"
exec 9>"$out.lock"
flock 9
# Another run may have built it in the meantime.
[ ! -e "$out" ] || exit 0
rm -rf "$out.new"
mkdir "$out.new"
# Nothing of this host, of the moment or of the place may reach the program.
export CGO_ENABLED=0 GOTOOLCHAIN=local GOOS=linux GOARCH=amd64 GOAMD64=v1 GOFLAGS='-mod=readonly -trimpath -buildvcs=false'
version=$(cd "$here" && go list -m -f '{{.Version}}' $module)
printf 'building system-upgrade-controller %s, once; this takes minutes\n' "$version"
go build -C "$here" -o "$out.new/system-upgrade-controller" \
  -ldflags "-s -w -buildid= -X $module/pkg/version.Version=$version" $module
source=$(cd "$here" && go list -m -f '{{.Dir}}' $module)
cp -R --no-preserve=mode "$source/manifests" "$source/kustomization.yaml" "$out.new"
mv "$out.new" "$out"
