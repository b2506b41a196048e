#!/usr/bin/env bash
# Builds the release of Kubernetes that `distribution: kubeadm` takes: programs for the OS image, archives of container
# images, and their list of checksums. The versions are those of the modules beside this file.
#
#   build.sh DIRECTORY SUITE [ARCHITECTURE]  makes DIRECTORY unless it is there; nft in the image of kube-proxy is that of Debian
#                                            SUITE. ARCHITECTURE is amd64 or arm64, that of this host unless given
#   build.sh --check-go                      only says where Go is missing or too old
#
# Needs Go, gcc (for another architecture gcc-aarch64-linux-gnu and libc6-dev-arm64-cross), mmdebstrap and zstd; root or a range of
# subordinate user ids for mmdebstrap.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
  printf 'error: %s\n  next: %s\n' "$1" "$2" >&2
  exit 1
}
release='Name the public release instead: leave kubernetes.artifacts out of the definition.'
go=$(command -v go >/dev/null && GOTOOLCHAIN=local go env GOVERSION || echo missing)
if [ "$go" = missing ] || ! printf 'go1.26.6\n%s\n' "$go" | sort --check=quiet --version-sort; then
  next="Install Go 1.26.6 or later. $release"
  [ "$1" != --check-go ] || { printf 'note: building Kubernetes needs Go 1.26.6 or later: go is %s\n  next: %s\n' "${go#go}" "$next"; exit; }
  fail "building Kubernetes needs Go 1.26.6 or later: go is ${go#go}" "$next"
fi
[ "$1" != --check-go ] || exit 0
out=$1 suite=$2 host=$(dpkg --print-architecture)
architecture=${3:-$host}
compiler=gcc foreign=()
if [ "$architecture" != "$host" ]; then
  case $architecture in
    amd64) compiler=x86_64-linux-gnu-gcc ;;
    arm64) compiler=aarch64-linux-gnu-gcc ;;
    *) fail "no release is made for $architecture" 'Name amd64 or arm64.' ;;
  esac
  # Nothing of the packages is run.
  foreign=(--skip=check/qemu)
fi

# The version of a module, as the go.mod of the folder requires it.
version() { sed -nE "s|^(require)?\s*$2 (v[^ ]+)( // .*)?$|\2|p" "$here/$1/go.mod" | head -n 1; }
kubernetes=$(version kubernetes k8s.io/kubernetes)
etcd=$(version etcd go.etcd.io/etcd/server/v3)
coredns=$(version coredns github.com/coredns/coredns)
cri_tools=$(version cri-tools sigs.k8s.io/cri-tools)

mkdir -p "$(dirname "$out")"
exec 9>"$out.lock"
flock 9
# Another run may have built it in the meantime.
[ ! -e "$out" ] || exit 0
rm -rf "$out.new"
mkdir "$out.new" "$out.new/work"
cd "$out.new"
# Nothing of this host, of the moment or of the place may reach the programs.
export CGO_ENABLED=0 GOTOOLCHAIN=local GOOS=linux GOARCH="$architecture" GOAMD64=v1 GOARM64=v8.0 GOFLAGS='-mod=readonly -trimpath -buildvcs=false'
export SOURCE_DATE_EPOCH=0 TZ=UTC LC_ALL=C

number=0
# Builds a package into a file of work/: FILE MODULE-FOLDER PACKAGE [LINKER FLAGS].
program() {
  number=$((number + 1))
  local start=$SECONDS
  printf '[%2d/12] %-24s' "$number" "$1"
  go build -C "$here/$2" -o "$PWD/work/$1" -ldflags "-s -w -buildid= ${4-}" "$3" ||
    fail "building $1 from its Go modules" "What Go said is above; GOPROXY names another server of modules. $release"
  printf '%5d s, %4d MB\n' $((SECONDS - start)) $(($(stat -c %s "work/$1") / 1000000))
}

printf 'building Kubernetes %s, etcd %s, CoreDNS %s and crictl %s, once; this takes a quarter of an hour on two processors\n' \
  "$kubernetes" "$etcd" "$coredns" "$cri_tools"
IFS=. read -r major minor _ <<<"${kubernetes#v}"
flags=''
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  flags+=" -X $package.gitVersion=$kubernetes -X $package.gitMajor=$major -X $package.gitMinor=$minor"
  flags+=" -X $package.gitTreeState=clean -X $package.buildDate=1970-01-01T00:00:00Z"
done
for name in kubelet kubeadm kubectl kube-apiserver kube-controller-manager kube-scheduler kube-proxy; do
  program "$name" kubernetes "k8s.io/kubernetes/cmd/$name" "$flags"
done
program etcd etcd go.etcd.io/etcd/server/v3
program coredns coredns github.com/coredns/coredns
program crictl cri-tools sigs.k8s.io/cri-tools/cmd/crictl "-X sigs.k8s.io/cri-tools/pkg/version.Version=${cri_tools#v}"

# The process that holds a pod's namespaces is one file of C in Kubernetes' module.
source=$(cd "$here/kubernetes" && go list -m -f '{{.Dir}}' k8s.io/kubernetes)/build/pause
pause=$(sed -nE 's/^TAG \?= ([0-9.]+).*/\1/p' "$source/Makefile")
printf '[11/12] pause %s\n' "$pause"
"$compiler" -Os -Wall -static -s -Wl,--build-id=none -DVERSION="v$pause" -o work/pause "$source/linux/pause.c"

# kube-proxy writes the rules of services with nft. What mmdebstrap copies from this host, and device nodes, stay behind.
# Since Debian 13 no package has the links beside /usr, and nft would not find its loader.
printf '[12/12] nft of Debian %s\n' "$suite"
mmdebstrap --quiet --variant=extract --format=tar --architectures="$architecture" "${foreign[@]}" --include=nftables "$suite" work/nftables.tar
mkdir -p work/nft/usr/{bin,lib,lib64,sbin}
for directory in bin lib lib64 sbin; do ln -s "usr/$directory" "work/nft/$directory"; done
tar --extract --file work/nftables.tar --directory work/nft --keep-directory-symlink --no-same-owner --wildcards \
  --exclude='*/gconv' --exclude='*/systemd' './usr/sbin/nft' './usr/lib*' './usr/share/doc/*/copyright'

# An archive of one image, as Docker writes it: NAME:TAG, the program's place in it, and perhaps a tree to put it into.
archive() {
  local image=$1 name=${1##*/} entry=$2 tree=${3-} root=work/image
  name=${name%%:*}
  rm -rf $root && mkdir $root
  if [ -n "$tree" ]; then cp -a "$tree" $root/tree; else mkdir $root/tree; fi
  mkdir -p "$root/tree$(dirname "$entry")"
  install -m 755 "work/$(basename "$entry")" "$root/tree$entry"
  "${tar[@]}" -cf $root/layer.tar -C $root/tree .
  printf '{"architecture":"%s","os":"linux","created":"1970-01-01T00:00:00Z","config":{"Env":["PATH=%s"],"Entrypoint":["%s"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$architecture" /usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$entry" "$(sha256sum <$root/layer.tar | cut -d ' ' -f 1)" >$root/config.json
  printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$image" >$root/manifest.json
  "${tar[@]}" -C $root -cf - manifest.json config.json layer.tar | zstd -q -3 -T0 -o "$name.tar.zst"
}
tar=(tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX --format=ustar)
echo 'writing the archives of container images'
for name in kube-apiserver kube-controller-manager kube-scheduler; do
  archive "registry.k8s.io/$name:$kubernetes" "/usr/local/bin/$name"
done
archive "registry.k8s.io/kube-proxy:$kubernetes" /usr/local/bin/kube-proxy work/nft
archive "registry.k8s.io/etcd:${etcd#v}-0" /usr/local/bin/etcd
archive "registry.k8s.io/coredns/coredns:$coredns" /coredns
archive "registry.k8s.io/pause:$pause" /pause
install -m 755 work/{crictl,kubeadm,kubelet,kubectl} .
rm -r work
sha256sum -- * >"sha256sum-$architecture.txt"
mv "$out.new" "$out"
