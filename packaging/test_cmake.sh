#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A project that is built with CMake gets the library by find_package() (installed by make.sh or by
# CMake, shared or static), by add_subdirectory() or by FetchContent; the configuration gets to it
# with the target. Both ways of building export the same names.
#
# seconds: 20

# shellcheck source=tests/harness.sh
. tests/harness.sh
# shellcheck source=packaging/consumer/harness.sh
. packaging/consumer/harness.sh

need cmake:cmake python3:python3
if have ninja; then export CMAKE_GENERATOR=Ninja; fi
PROJECT=$TMP/project
copy_project "$PROJECT"

# ---- Installed by make.sh ------------------------------------------------------------------------

made=$TMP/made
must "make.sh install fails" \
    env CC="$CC" PREFIX="$made" bash "$PROJECT/make.sh" -o no-man install
find_made=(-DWAY=find_package -Daco_ROOT="$made")
check_cmake_consumer "find_package" "${find_made[@]}" -DWANTED="${VERSION%.*}"
[[ $(ldd "$TMP/build/user_c") == *"$made/lib/libaco.so.${VERSION%%.*} "* ]] ||
    fail "find_package: the program does not load libaco.so"
check_cmake_consumer "find_package, static" "${find_made[@]}" -DACO_USE_STATIC_LIBS=ON
[[ $(ldd "$TMP/build/user_c") != *libaco* ]] || fail "ACO_USE_STATIC_LIBS: it is shared"

if have pkg-config; then
    PKG_CONFIG_PATH=$made/lib/pkgconfig check_cmake_consumer "pkg_check_modules" \
        -DWAY=pkg_check_modules
fi

configure=(cmake -S "$CONSUMER" -B "$TMP/refused" "${find_made[@]}")
must_not "find_package finds a version that is not there" "version: $VERSION" \
    "${configure[@]}" -DWANTED=$((${VERSION%%.*} + 1))
must_not "find_package takes an older major version for the same" "version: $VERSION" \
    "${configure[@]}" -DWANTED=$((${VERSION%%.*} - 1))
must_not "find_package finds a newer minor version" "version: $VERSION" \
    "${configure[@]}" -DWANTED="${VERSION%%.*}.99"
must "find_package does not find its own version" \
    "${configure[@]}" "-DWANTED=$VERSION;EXACT"
echo "find_package: versions are told apart"

# ---- Installed by CMake --------------------------------------------------------------------------

# install_by_cmake DIRECTORY OPTION...
install_by_cmake() {
    local prefix=$1 build=$TMP/library
    shift
    rm -rf "$build"
    must "the library: CMake fails" cmake -S "$PROJECT" -B "$build" -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_C_COMPILER="${C_COMPILER[0]}" -DCMAKE_C_FLAGS=-Werror \
        -DCMAKE_INSTALL_PREFIX="$prefix" "$@"
    must "the library does not build with CMake" cmake --build "$build"
    must "the library does not get installed by CMake" cmake --install "$build"
}

exports() {
    nm -D --defined-only "$1" | awk '{ print $2, $3 }' | LC_ALL=C sort
}

shared=$TMP/shared
install_by_cmake "$shared" -DBUILD_SHARED_LIBS=ON
check_cmake_consumer "find_package after CMake's installation, shared" \
    -DWAY=find_package -Daco_ROOT="$shared" -DWANTED="${VERSION%.*}"
[[ $(ldd "$TMP/build/user_c") == *"$shared/lib"*"/libaco.so.${VERSION%%.*} "* ]] ||
    fail "the program does not load the shared library that CMake has installed"
for library in "$made"/lib/libaco*.so; do
    diff <(exports "$library") <(exports "$shared"/lib*/"${library##*/}") ||
        fail "${library##*/} by make.sh (left) and by CMake (right) export different names"
done
diff <(cd "$made" && ls -R include share/aco share/doc) \
    <(cd "$shared" && ls -R include share/aco share/doc) ||
    fail "make.sh (left) and CMake (right) install different files"
if have pkg-config; then
    read -ra flags < <(PKG_CONFIG_LIBDIR=$(echo "$shared"/lib*/pkgconfig) \
        pkg-config --cflags --libs aco)
    check_consumer "pkg-config after CMake's installation" "${flags[@]}" \
        -Wl,-rpath,"$(echo "$shared"/lib*)"
    if [[ $RUNTIME == ON ]]; then
        read -ra flags < <(PKG_CONFIG_LIBDIR=$(echo "$shared"/lib*/pkgconfig) \
            pkg-config --cflags --libs aco-runtime)
        check_runtime "pkg-config aco-runtime after CMake's installation" "${flags[@]}" \
            -Wl,-rpath,"$(echo "$shared"/lib*)"
        # The libraries find each other: none of them is named but this one.
        read -ra flags < <(PKG_CONFIG_LIBDIR=$(echo "$shared"/lib*/pkgconfig) \
            pkg-config --cflags --libs aco-hooks)
        check_hooks "pkg-config aco-hooks after CMake's installation" "${flags[@]}" \
            -Wl,-rpath,"$(echo "$shared"/lib*)"
        check_run "CMake's installation" "$shared/bin/aco-run"
    fi
fi

static=$TMP/static
install_by_cmake "$static" -DACO_CONFIG_SHARE_FPU_MXCSR_ENV=ON
check_cmake_consumer "find_package after CMake's installation, static, another configuration" \
    -DWAY=find_package -Daco_ROOT="$static"
[[ $(nm "$TMP/build/user_c") == *shareFPUenv* ]] ||
    fail "the configuration did not get to the program"

# ---- Part of the project -------------------------------------------------------------------------

check_cmake_consumer "add_subdirectory" -DWAY=add_subdirectory -DSOURCE="$PROJECT"
check_cmake_consumer "add_subdirectory, shared, another configuration" -DWAY=add_subdirectory \
    -DSOURCE="$PROJECT" -DBUILD_SHARED_LIBS=ON -DACO_CONFIG_SHARE_FPU_MXCSR_ENV=ON
[[ $(nm "$TMP/build/user_c") == *shareFPUenv* ]] ||
    fail "the configuration did not get to the program"
must "an installation of the project around it fails" \
    cmake --install "$TMP/build" --prefix "$TMP/around"
[[ ! -e $TMP/around/include ]] || fail "it gets installed with the project around it, unasked"

tar -czf "$TMP/aco.tar.gz" -C "$TMP" --exclude=output project
check_cmake_consumer "FetchContent" -DWAY=FetchContent -DSOURCE="$TMP/aco.tar.gz"
