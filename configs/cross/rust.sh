#!/bin/bash
# Makes a Rust that compiles for 64-bit Arm, in DIRECTORY: DIRECTORY/rustc is the compiler.
#   rust.sh DIRECTORY
# Where the host's own Rust can do it, as after `rustup target add aarch64-unknown-linux-gnu`, that is linked there. Otherwise Debian's
# packages of Rust are downloaded and unpacked, with an apt of their own: the host's packages stay as they are, and no root is needed.
set -euo pipefail

target=aarch64-unknown-linux-gnu
directory=$(realpath -m "$1")
new=$directory.new
rm -rf "$new"
mkdir -p "$new"
trap 'rm -rf "$new"' EXIT

finish() {
  rm -rf "$directory"
  mv "$new" "$directory"
  echo "Rust for $target is in $directory"
}

can_compile() {
  [ -n "$(find "$("$1" --print target-libdir --target $target 2>/dev/null)" -name 'libstd-*.rlib' 2>/dev/null)" ]
}

if ! can_compile rustc && command -v rustup >/dev/null; then rustup target add $target || true; fi
if can_compile rustc; then
  ln -s "$(rustc --print sysroot)/bin/rustc" "$new/rustc"
  finish
  exit
fi

own=$(dpkg --print-architecture)
apt=$new/apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial"
: >"$apt/status"
options=(-o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt" -o APT::Sandbox::User=
  -o "Dir::Cache::archives=$apt/archives" -o "APT::Architectures::=$own" -o APT::Architectures::=arm64 -o Acquire::Languages=none
  -o APT::Install-Recommends=false -o Debug::NoLocking=1)
apt-get "${options[@]}" -q update
# Debian has newer versions of Rust beside the one of its release, for what is built from source with each security update.
names=
for rust in rustc-web rustc; do
  if apt-get "${options[@]}" -s install "$rust" "libstd-$( [ $rust = rustc ] && echo rust-dev || echo rust-web-dev ):arm64" \
    >"$apt/plan" 2>&1; then
    names=$(awk '$1 == "Inst" { print $2 }' "$apt/plan" | grep -E '^(rustc|libstd-rust|libllvm|libz3|libedit|libxml2|libbsd|libmd)')
    break
  fi
done
if [ -z "$names" ]; then
  cat "$apt/plan" >&2
  printf 'error: Debian has no Rust with a standard library for arm64 for this release\n  next: %s\n' \
    "Install Rust with rustup, then run: rustup target add $target" >&2
  exit 1
fi
cd "$apt/archives"
# Word splitting is meant: one word for each package.
# shellcheck disable=SC2086
apt-get "${options[@]}" -q download $names
for package in *.deb; do dpkg-deb --extract "$package" "$new"; done
cd "$new"
rm -rf "$apt"
libraries=$(find usr/lib -maxdepth 1 -type d -name '*-linux-gnu' | paste -s -d ' ')
cat >rustc <<END
#!/bin/sh
root=\$(dirname "\$(readlink -f "\$0")")
for place in $libraries; do path=\$path\${path:+:}\$root/\$place; done
export LD_LIBRARY_PATH=\$path
exec "\$root/usr/bin/rustc" "\$@"
END
chmod 755 rustc
finish
