#!/bin/sh
# Installs what the demonstration, the tests and the examples need. Does nothing when it is all there.
set -eu
cd "$(dirname "$0")/.."

# Rust is the one prerequisite that is not installed here: a toolchain belongs to its user.
wanted=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
advice="install Rust $wanted with rustup: https://rustup.rs (rustup then reads rust-toolchain.toml by itself)"
if ! command -v cargo >/dev/null; then
    echo "setup: cargo is missing; $advice" >&2
    exit 1
fi
if ! found=$(rustc --version 2>/dev/null | cut -d' ' -f2) || [ -z "$found" ]; then
    echo "setup: rustc does not run; $advice" >&2
    exit 1
fi
if [ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n1)" != "$wanted" ]; then
    echo "setup: rustc is $found, older than $wanted; $advice" >&2
    exit 1
fi

missing=
# need COMMAND-OR-FILE PACKAGE: the package is missing when neither is there.
need() {
    command -v "$1" >/dev/null 2>&1 || [ -e "$1" ] || missing="$missing $2"
}
PATH=$PATH:/usr/sbin:/sbin
need cc gcc
need pkg-config pkg-config
need python3 python3
need ip iproute2
need setpriv util-linux
need rping rdmacm-utils
need ibv_devinfo ibverbs-utils
need ib_write_bw perftest
need tshark tshark
need /usr/include/infiniband/verbs.h libibverbs-dev
need /usr/include/rdma/rdma_cma.h librdmacm-dev
# Any version of libclang serves the examples' bindings.
found_clang=
for library in /usr/lib/llvm-*/lib/libclang.so* /usr/lib/*/libclang*.so* /usr/lib64/libclang*.so*; do
    [ -e "$library" ] && found_clang=yes
done
[ -n "$found_clang" ] || missing="$missing libclang-dev"

[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
    echo "setup: not a Debian system; install what these Debian packages hold:$missing" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: needs root to run: apt-get install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 "$@"
}
# shellcheck disable=SC2086 # the list is words
apt install --no-install-recommends $missing || { apt update && apt install --no-install-recommends $missing; }
