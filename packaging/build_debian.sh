#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the Debian packages libaco2, libaco-{runtime,hooks,compat,pthreads}2, aco-run and
# libaco-dev, and their source package, in output/debian/.
# Relies on the packages dpkg-dev and debhelper, which ./test.sh -i all installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(awk '/^#define ACO_VERSION_(MAJOR|MINOR|PATCH) / { v = v dot $3; dot = "." }
               END { print v }' aco.h)
changelog_version=$(dpkg-parsechangelog -l packaging/debian/changelog -S Version)
if [[ ${changelog_version%-*} != "$version" ]]; then
    printf '%s: packaging/debian/changelog is about %s, aco.h about %s: add an entry to it\n' \
        "${0##*/}" "$changelog_version" "$version" >&2
    exit 1
fi

readonly BUILD=output/debian/aco-$version
rm -rf output/debian
mkdir -p "$BUILD"
tar -c --exclude=./output --exclude=./.git . | tar -x -C "$BUILD"
tar -cJf "output/debian/aco_$version.orig.tar.xz" -C output/debian "aco-$version"
cp -R packaging/debian "$BUILD/debian"
cd "$BUILD"
dpkg-buildpackage -us -uc "$@"
