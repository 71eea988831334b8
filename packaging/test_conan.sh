#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The Conan recipe makes packages, static and shared, of which one is configured in another way; a
# project gets them by Conan's generators, for CMake and for pkg-config. Conan has a home of its own
# for the test, and asks no server.
#
# seconds: 20

# shellcheck source=tests/harness.sh
. tests/harness.sh
# shellcheck source=packaging/consumer/harness.sh
. packaging/consumer/harness.sh

export PATH=$PWD/$OUTPUT/conan/bin:$PATH CONAN_HOME=$TMP/conan
have conan || lack "no conan: pip install 'conan>=2.4,<3'"
need cmake:cmake pkg-config:pkg-config
copy_project "$TMP/project"

must "conan tells no profile" conan profile detect
must "conan accepts no remotes to be away" conan remote disable '*'

# check WHAT OPTION...: makes a package with the options, and programs with it.
check() {
    local what=$1 option options=() made=$TMP/made
    shift
    for option in "$@"; do
        options+=(-o "aco/*:$option")
    done
    rm -rf "$made"
    must "$what: conan does not make the package" \
        conan create "$TMP/project/packaging/conan" "${options[@]}"
    # Where it is called from, it may write files.
    must "$what: conan does not find the package" \
        env -C "$TMP" conan install --requires="aco/$VERSION" -of "$made" "${options[@]}" \
        -g CMakeDeps -g CMakeToolchain -g PkgConfigDeps -g VirtualRunEnv
    check_cmake_consumer "$what, CMake" -DWAY=find_package -DWANTED="${VERSION%.*}" \
        -DCMAKE_TOOLCHAIN_FILE="$made/conan_toolchain.cmake"
    read -ra flags < <(PKG_CONFIG_LIBDIR=$made pkg-config --cflags --libs aco)
    # The shared library is found by the environment that Conan's own script makes.
    # shellcheck source=/dev/null
    (set +u && . "$made/conanrun.sh" && check_consumer "$what, pkg-config" "${flags[@]}")
    if [[ $RUNTIME == ON ]]; then
        read -ra flags < <(PKG_CONFIG_LIBDIR=$made pkg-config --cflags --libs aco-runtime)
        # shellcheck source=/dev/null
        (set +u && . "$made/conanrun.sh" &&
            check_runtime "$what, pkg-config aco-runtime" "${flags[@]}")
        read -ra flags < <(PKG_CONFIG_LIBDIR=$made pkg-config --cflags --libs aco-hooks)
        # shellcheck source=/dev/null
        (set +u && . "$made/conanrun.sh" && check_hooks "$what, pkg-config aco-hooks" "${flags[@]}")
    fi
}

check "conan, static"
check "conan, shared, another configuration" shared=True share_fpu_mxcsr_env=True
[[ $(nm "$TMP/build/user_c") == *shareFPUenv* ]] ||
    fail "the configuration did not get to the program"
