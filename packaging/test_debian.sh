#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The Debian packages get built, lintian finds neither error nor warning in them, apt installs and
# purges them, and in between programs build and run that know of nothing but the system. That
# system is a copy of this one, an overlay that goes away with the test, so that nothing is changed
# here. Where no such copy can be made (only root can), the packages are unpacked and used from
# there.
#
# seconds: 48

# shellcheck source=tests/harness.sh
. tests/harness.sh
# shellcheck source=packaging/consumer/harness.sh
. packaging/consumer/harness.sh

PACKAGES=${PACKAGES:-$TMP/project/output/debian}

# Installs the packages on this system, and checks it.
check_system() {
    local library
    must "apt does not install the packages" env DEBIAN_FRONTEND=noninteractive \
        apt install -y --no-install-recommends "$PACKAGES"/*aco*.deb
    read -ra flags < <(pkg-config --cflags --libs aco)
    check_consumer "apt, pkg-config" "${flags[@]}"
    read -ra flags < <(pkg-config --cflags --libs aco-runtime)
    check_runtime "apt, pkg-config aco-runtime" "${flags[@]}"
    read -ra flags < <(pkg-config --cflags --libs aco-compat)
    check_compat "apt, pkg-config aco-compat" "" "${flags[@]}"
    read -ra flags < <(pkg-config --cflags --libs aco-hooks)
    check_hooks "apt, pkg-config aco-hooks" "${flags[@]}"
    read -ra flags < <(pkg-config --cflags --libs aco-pthreads)
    check_threads "apt, pkg-config aco-pthreads" "${flags[@]}"
    check_run apt aco-run
    check_cmake_consumer "apt, find_package" -DWAY=find_package
    library=$(readlink -e "$(ldd "$TMP/build/user_c" | awk '/libaco/ { print $3 }')")
    [[ $(dpkg -S "$library") == libaco2* ]] || fail "the program loads $library, not the package's"
    if [[ -e /usr/share/man/man7/aco.7.gz ]]; then # dpkg may be told to leave out manual pages
        [[ $(man -w 3 aco_resume) == */aco_resume.3.gz ]] || fail "man does not find its pages"
    fi
    if have gdb; then
        gdb -nx -batch -ex 'break main' -ex run -ex 'help info aco' "$TMP/build/user_c" \
            >"$TMP/said" 2>&1 || true
        [[ $(<"$TMP/said") == *"List the coroutines"* ]] ||
            fail "gdb does not load its script with the library"
    fi
    must "apt does not purge the packages" apt-get purge -y aco-run \
        libaco{2,-{runtime,hooks,compat,pthreads}2,-dev}
    [[ ! -e $library && ! -e /usr/include/aco.h ]] || fail "the packages leave something"
    echo "apt: installed, used and purged, in a copy of the system"
}

# In a mount namespace of its own: makes a copy of the system, with its mount point at $1/root.
copy_system() {
    local directory
    mount -t tmpfs tmpfs "$1" &&
        mkdir -p "$1"/{root,changes,work} &&
        mount -t overlay overlay -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" "$1/root" &&
        for directory in /proc /dev "$PWD" "$PACKAGES"; do
            mkdir -p "$1/root$directory" && mount --rbind "$directory" "$1/root$directory" || return
        done
}

# Prints why it can't be done, if it can't, and exits with 77.
in_copy() {
    copy_system "$1" || exit 77
    exec chroot "$1/root" env -C "$PWD" TMP=/tmp bash packaging/test_debian.sh check_system
}

# Unpacks the packages, and checks that a compiler and a loader can use their files from there.
check_unpacked() {
    local root=$TMP/unpacked package file libraries
    for package in "$PACKAGES"/{aco-run,libaco{2,-{runtime,hooks,compat,pthreads}2,-dev}}_*.deb; do
        dpkg-deb -x "$package" "$root"
    done
    for file in README.md docs/howto.md examples/generator.c; do
        [[ -s $root/usr/share/doc/aco/$file ]] || fail "the packages have no $file"
    done
    libraries=$(dirname "$root"/usr/lib/*/libaco.so)
    for file in "$libraries"/libaco*.so; do
        [[ $(readelf -d "$file") != *"PATH)"* ]] || fail "${file##*/} has a RUNPATH in the packages"
    done
    export PKG_CONFIG_LIBDIR=$libraries/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
    read -ra flags < <(pkg-config --cflags --libs aco)
    check_consumer "unpacked, pkg-config" "${flags[@]}" -Wl,-rpath,"$libraries"
    read -ra flags < <(pkg-config --cflags --libs aco-runtime)
    check_runtime "unpacked, pkg-config aco-runtime" "${flags[@]}" -Wl,-rpath,"$libraries"
    read -ra flags < <(pkg-config --cflags --libs aco-compat)
    check_compat "unpacked, pkg-config aco-compat" "$libraries" "${flags[@]}"
    read -ra flags < <(pkg-config --cflags --libs aco-hooks)
    LD_LIBRARY_PATH=$libraries check_hooks "unpacked, pkg-config aco-hooks" "${flags[@]}"
    check_run unpacked "$root/usr/bin/aco-run"
    unset PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR
}

if (($#)); then
    "$@"
    exit
fi

[[ $RUNTIME == ON ]] || skip "the packages have the runtime, which is not there"
need dpkg-buildpackage:dpkg-dev dh:debhelper lintian:lintian python3:python3 \
    pkg-config:pkg-config cmake:cmake
dpkg-checkbuilddeps packaging/debian/control ||
    lack "dpkg-checkbuilddeps lacks a package: apt-get install build-essential"
copy_project "$TMP/project"
must "the Debian packages do not get built" "$TMP/project/packaging/build_debian.sh"
# A first upload would close a bug of Debian's, which this one is not about.
must "lintian finds faults in the Debian packages" lintian --fail-on error,warning \
    --suppress-tags initial-upload-closes-no-bugs "$PACKAGES"/*.changes
echo "built: $(cd "$PACKAGES" && echo ./*.deb)"
echo "lintian finds no fault"

check_unpacked
mkdir "$TMP/system"
status=77
if unshare -m true; then
    status=0
    PACKAGES=$PACKAGES unshare -m bash packaging/test_debian.sh in_copy "$TMP/system" || status=$?
fi
if ((status == 77)); then
    echo "no copy of the system can be made here: not installed by apt"
else
    exit "$status"
fi
