#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the program of one Rust crate: build.sh CRATE OUT. Relies on cargo, which fetches what
# Cargo.lock pins; all that it keeps lies beside OUT.
#
# kind: stackful
# needs: cargo-web/cargo
# registry: crates.io corosensei 0.3.4
# peer: corosensei
# build: "$SRC/build.sh" corosensei "$OUT"
# registry: crates.io generator 0.8.11
# peer: generator (Rust)
# build: "$SRC/build.sh" generator "$OUT"
set -euo pipefail

readonly CRATE=$1 OUT=$2 HERE=${BASH_SOURCE[0]%/*}
KEPT=$(realpath "$(dirname "$OUT")")/rust
readonly KEPT

version=$(cargo --version 2>&1) || true
if ! [[ $version =~ ^cargo\ 1\.([0-9]+) ]] || ((BASH_REMATCH[1] < 73)); then
    echo 'error: it needs cargo 1.73 or newer (Debian 12: cargo-web)'
    exit 1
fi
CARGO_HOME=$KEPT/cargo cargo build --quiet --release --locked --bin "$CRATE" \
    --manifest-path "$HERE/Cargo.toml" --target-dir "$KEPT/target"
cp "$KEPT/target/release/$CRATE" "$OUT"
