#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# With musl as libc, the library and its optional parts compile without a warning, and the test
# programs pass, in the plain and in the stress build. Relies on musl-gcc, on a libgcc for which
# musl_unwinder.c stands in for glibc, and on the sources of cmocka that ./test.sh -i all leaves in
# output/. REASONS lists what a test can't look at there.
# parts: plain stress
# seconds: 30 30

# shellcheck source=tests/harness.sh
. tests/harness.sh

shopt -s nullglob
declare -rA BUILDS=([plain]="" [stress]="-DACO_CONFIG_STRESS -DACO_CONFIG_SHARE_FPU_MXCSR_ENV")
PARTS=("$@")
(($#)) || PARTS=("${!BUILDS[@]}")
readonly TESTS=(tests/test_*.c extra/*/tests/test_*.c)
readonly SOURCES=(aco.c acosw.S extra/*/aco_*.c tests/harness.c tests/musl_unwinder.c)

# Parts of tests that need glibc, and why.
declare -rA REASONS=(
    [tests/harness.sh]="new blocks are not made dirty: musl knows no MALLOC_PERTURB_"
    [extra/overflow/tests/test_overflow.c]="reports are one line: no backtrace()"
    [tests/test_unwinding.c]="main's traces end in libc: musl has no unwind tables"
)

[[ $OPTIONS != *no-musl* ]] || skip "-o no-musl"
need musl-gcc:musl-tools
CMOCKA_SOURCES=$(echo "$OUTPUT"/cmocka-*/src/cmocka.c)
[[ -n $CMOCKA_SOURCES ]] || lack "no sources of cmocka in $OUTPUT"
readonly CMOCKA_INCLUDE=${CMOCKA_SOURCES%/src/*}/include

# The kernel's headers are those of the machine; no other header of glibc may be found beside them.
mkdir "$TMP/kernel"
ln -s /usr/include/{linux,asm-generic} "/usr/include/$(musl-gcc -print-multiarch)/asm" \
    "$TMP/kernel"

COMPILE=(musl-gcc -std=gnu99 -O2 "${C_WARNINGS[@]}" -I. -isystem "$CMOCKA_INCLUDE"
    -idirafter "$TMP/kernel")
# The specs of musl-gcc ask for no table of unwind tables.
LINK=("-Wl,--eh-frame-hdr" -lpthread -lm -ldl)

build_objects() {
    local source object
    OBJECTS=("$TMP/cmocka.o")
    for source in "${SOURCES[@]}"; do
        object=$TMP/$(basename "${source%.*}").o
        must "$*: $source does not compile" "${COMPILE[@]}" "$@" -c "$source" -o "$object"
        OBJECTS+=("$object")
    done
}

# run_test TEST OPTION...
run_test() {
    local source=$1 more
    shift
    mapfile -t more < <(sed -n 's,^// build\( x86\)*: ,,p' "$source" | tr ' ' '\n')
    must "$*: $source does not compile" "${COMPILE[@]}" "$@" "$source" "${OBJECTS[@]}" \
        "${more[@]}" -o "$TMP/program" "${LINK[@]}"
    must "$*: $source" timeout 100 "$TMP/program"
}

for source in "${!REASONS[@]}"; do
    echo "$source: ${REASONS[$source]}"
done
must "cmocka does not compile" musl-gcc -O1 -w -DHAVE_SIGNAL_H -I"$CMOCKA_INCLUDE" \
    -c "$CMOCKA_SOURCES" -o "$TMP/cmocka.o"
for part in "${PARTS[@]}"; do
    build=${BUILDS[$part]}
    read -ra options <<<"$build"
    build_objects "${options[@]}"
    ((${#TESTS[@]})) || fail "there are no tests"
    for test in "${TESTS[@]}"; do
        run_test "$test" "${options[@]}"
    done
    echo "musl-gcc $build: ${#TESTS[@]} tests"
done
