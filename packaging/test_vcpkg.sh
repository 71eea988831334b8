#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The port for vcpkg has the version of aco.h, and its portfile makes a package by which projects
# build and run, for Debug and for Release, wherever the package lies. The test needs no vcpkg:
# steps.cmake does what it would do.

# shellcheck source=tests/harness.sh
. tests/harness.sh
# shellcheck source=packaging/consumer/harness.sh
. packaging/consumer/harness.sh

need cmake:cmake pkg-config:pkg-config python3:python3
if have ninja; then export CMAKE_GENERATOR=Ninja; fi
copy_project "$TMP/project"
PORT=$TMP/project/packaging/vcpkg/aco

# field NAME: of the port's manifest, a string or the names of what is in it.
field() {
    python3 -c 'import json, sys
value = json.load(open(sys.argv[1]))[sys.argv[2]]
print(value if isinstance(value, str) else ";".join(value))' "$PORT/vcpkg.json" "$1"
}

[[ $(field name) == aco ]] || fail "vcpkg.json: the name is not aco"
[[ $(field version-semver) == "$VERSION" ]] ||
    fail "vcpkg.json is about $(field version-semver), aco.h about $VERSION"

must "the portfile fails" cmake -DPORT="$PORT" -DPACKAGE="$TMP/first" \
    -DFEATURES="$(field features)" -P packaging/vcpkg/steps.cmake
mv "$TMP/first" "$TMP/package"
rm -rf "$TMP/first-build"
for file in share/aco/copyright {,debug/}lib/libaco.a include/aco.h; do
    [[ -s $TMP/package/$file ]] || fail "the package lacks $file"
done
[[ ! -e $TMP/package/debug/include && ! -e $TMP/package/debug/share ]] ||
    fail "the package has headers or more for debug"

[[ ! -e $TMP/package/bin && ! -e $TMP/package/debug/bin ]] || fail "the package has programs"

for kind in Release Debug; do
    check_cmake_consumer "vcpkg's steps, find_package, $kind" -DWAY=find_package \
        -DCMAKE_PREFIX_PATH="$TMP/package" -DWANTED="${VERSION%.*}" -DCMAKE_BUILD_TYPE="$kind"
    [[ $(nm "$TMP/build/user_c") == *shareFPUenv*list* ]] ||
        fail "the features of the package did not get to the program"
done
[[ $(ninja -C "$TMP/build" -t commands 2>/dev/null || cat "$TMP/build"/CMakeFiles/*/link.txt) == \
    *package/debug/lib/libaco.a* ]] ||
    fail "a program for Debug is linked with the library of Release"
read -ra flags < <(PKG_CONFIG_LIBDIR=$TMP/package/lib/pkgconfig pkg-config --cflags --libs aco)
check_consumer "vcpkg's steps, pkg-config" "${flags[@]}"
if [[ $RUNTIME == ON ]]; then
    read -ra flags < <(PKG_CONFIG_LIBDIR=$TMP/package/lib/pkgconfig \
        pkg-config --cflags --libs aco-runtime)
    check_runtime "vcpkg's steps, pkg-config aco-runtime" "${flags[@]}"
fi
