#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the program of one Rust crate: build.sh CRATE fresh|pool OUT, where each coroutine has a
# new stack, or one from a pool. OUT is a script, since both are in one program; there is one more,
# OUT-BYTES, for each number of bytes in $PADDINGS. Relies on cargo, which fetches what Cargo.lock
# pins; where it is rustup's, rust-toolchain.toml pins the compiler, too. All that is kept lies
# beside OUT. build.sh CRATE source OUT prints the folder with the crate's sources instead.
#
# kind: stackful
# needs: cargo-web/cargo
# registry: crates.io corosensei 0.3.4
# peer: corosensei
# build: "$SRC/build.sh" corosensei fresh "$OUT"
# peer: corosensei, pool
# build: "$SRC/build.sh" corosensei pool "$OUT"
# registry: crates.io generator 0.8.11
# peer: generator (Rust)
# build: "$SRC/build.sh" generator fresh "$OUT"
# peer: generator (Rust), pool
# build: "$SRC/build.sh" generator pool "$OUT"
# registry: crates.io wasmtime-internal-fiber 36.0.20
# peer: Wasmtime fiber
# build: "$SRC/build.sh" wasmtime fresh "$OUT"
# peer: Wasmtime fiber, pool
# build: "$SRC/build.sh" wasmtime pool "$OUT"
set -euo pipefail

readonly CRATE=$1 KIND=$2 OUT=$3
KEPT=$(realpath "$(dirname "$OUT")")/rust
# link.sh reads these.
export PROGRAM=$KEPT/$CRATE PADDINGS=${PADDINGS:-}
readonly KEPT PROGRAM PADDINGS

# Both rows of a crate may be built at the same time.
mkdir -p "$KEPT"
exec 9> "$KEPT/lock"
flock 9

cargo_build()
{
    cargo build --quiet --release --locked --features "$CRATE" --target-dir "$KEPT/target" "$@"
}

cd "${BASH_SOURCE[0]%/*}" # where rustup looks for the toolchain
export CARGO_HOME=$KEPT/cargo RUSTFLAGS="-C linker=$PWD/link.sh -C linker-flavor=gcc"

if [[ $KIND == source ]]; then
    cargo_build --lib
    echo "$CARGO_HOME"/registry/src/*/"$CRATE"-*
    exit
fi

# The scripts tell the compiler's version as programs do. The first is the one without padding.
version=$(rustc --version)
for padding in '' $PADDINGS; do
    padding=${padding:+-$padding}
    printf '#!/bin/sh\n# %s\nexec "%s" %s "$@"\n' "${version/rustc/rustc version}" \
        "$PROGRAM$padding" "$KIND" > "$OUT$padding"
    chmod +x "$OUT$padding"
    # Programs are linked together.
    [[ -x $PROGRAM$padding ]] || rm -f "$KEPT/target/release/deps/$CRATE-"*
done
cargo_build --bin "$CRATE"
