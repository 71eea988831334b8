#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Gets a Boost.Context that Debian can't install beside libboost-context-dev, and prints what the
# compiler needs of it: boost.sh KIND OUT. All that is kept lies beside OUT.
#   no_control_words  the assembly, which libboost-context-dev has compiled only, with
#                     BOOST_USE_TSX: the switch leaves MXCSR and the x87 control word alone. It
#                     comes with a Rust crate and is, without that macro, instruction by
#                     instruction what Debian's Boost 1.74 has.
#   1.81              Debian's other version of Boost
set -euo pipefail

readonly KIND=$1 OUT=$2
KEPT=$(realpath "$(dirname "$OUT")")/boost_$KIND
readonly KEPT

# The rows may be built at the same time.
mkdir -p "$KEPT"
exec 9> "$KEPT/lock"
flock 9

fail() {
    echo "error: $1" >&2
    exit 1
}

compile_assembly() {
    mkdir -p "$KEPT/src"
    : > "$KEPT/src/lib.rs"
    printf '%s\n' '[package]' 'name = "assembly"' 'version = "0.0.0"' '[dependencies]' \
        'context = "=2.1.0"' > "$KEPT/Cargo.toml"
    CARGO_HOME=$KEPT/cargo cargo fetch --quiet --target x86_64-unknown-linux-gnu \
        --manifest-path "$KEPT/Cargo.toml" >&2
    cp "$KEPT"/cargo/registry/src/*/context-2.1.0/src/asm/*_x86_64_sysv_elf_gas.S "$KEPT"
    cd "$KEPT"
    sha256sum --quiet --check << 'END' >&2 || fail 'the assembly is not what it was'
93da163b1e75f3857c5a454ebeb646a6a9b60581674d0e261623a763d16d8b12  jump_x86_64_sysv_elf_gas.S
0d15b94744d32c9033a332150200943a96284c43e746100469381fabeff90da7  make_x86_64_sysv_elf_gas.S
df1ad3201586dad9a91a96f0da76a7865e9ba7a0c26c66c702efcd6596277805  ontop_x86_64_sysv_elf_gas.S
END
    "${CC:-gcc}" -DBOOST_USE_TSX -c ./*.S
}

unpack_packages() {
    local package
    cd "$KEPT"
    for package in libboost1.81-dev libboost-context1.81-dev; do
        apt-get download -qq "$package" >&2 || fail "there is no package $package"
        dpkg -x "$package"_*.deb .
        rm "$package"_*.deb
    done
}

if [[ ! -e $KEPT/done ]]; then
    case $KIND in
        no_control_words) compile_assembly ;;
        1.81) unpack_packages ;;
    esac
    : > "$KEPT/done"
fi
case $KIND in
    no_control_words) printf '%s\n' "$KEPT"/{jump,make,ontop}_x86_64_sysv_elf_gas.o ;;
    1.81) printf '%s\n' -isystem "$KEPT/usr/include" "$KEPT"/usr/lib/*/libboost_context.a ;;
esac
