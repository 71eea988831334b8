#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Memcheck on coroutines that share stacks, with ACO_USE_VALGRIND: it reports nothing for
# memcheck_clean.c, and for memcheck_errors.c exactly what its comments say, at their lines. Its
# traces end at the entry function.
#
# seconds: 15
# user

# shellcheck source=tests/harness.sh
. tests/harness.sh

VARIANTS=("-O2")
ONLY_GCC=("-O0 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV" "-O1 -DACO_CONFIG_NO_INLINE_SWITCH")

# Whether memcheck is there, finds its header and can run a program of the width.
can_memcheck() {
    echo '#include <valgrind/memcheck.h>
int main(void) { return (int)RUNNING_ON_VALGRIND - 1; }' |
        "${FOUND[0]}" "$1" -x c - -o "$TMP/probe" 2>"$TMP/said" &&
        valgrind -q "$TMP/probe" >"$TMP/said" 2>&1
}

# The errors of a report: two words of what it is, and where.
errors_of() {
    awk '/^==[0-9]+==    at 0x/ { print kind, $NF } { kind = $2 " " $3 }' "$1" | sort
}

# The errors that the comments of a source ask for, in the same form.
errors_wanted() {
    awk -v file="${1##*/}" '
        match($0, /memcheck: [A-Z][a-z]+ [a-z]+/) {
            print substr($0, RSTART + 10, RLENGTH - 10), "(" file ":" NR ")"
        }' "$1" | sort
}

run_clean() {
    local what=$1
    must "$what: memcheck finds something, or a frame lost what it held" \
        valgrind --error-exitcode=99 --leak-check=full "$TMP/memcheck_clean"
    grep -q 'ERROR SUMMARY: 0 errors' "$TMP/said" || fail "$what: memcheck did not run"
    if grep -A 2 'Warning' "$TMP/said" >&2; then
        fail "$what: memcheck does not know the stacks"
    fi
}

run_errors() {
    local what=$1 ct
    must "$what: memcheck_errors fails by itself" \
        valgrind --leak-check=full --log-file="$TMP/report" "$TMP/memcheck_errors"
    errors_wanted tests/programs/memcheck_errors.c >"$TMP/wanted"
    errors_of "$TMP/report" >"$TMP/found"
    if ! diff "$TMP/wanted" "$TMP/found" >&2; then
        fail "$what: < was to be reported, > was"
    fi
    ct=$(wc -l <"$TMP/wanted")
    if [[ "$ct" -eq 0 ]] ||
        ! grep -q "ERROR SUMMARY: $ct errors from $ct contexts" "$TMP/report"; then
        fail "$what: not $ct errors: $(tail -n 1 "$TMP/report")"
    fi
    if grep -F -B 5 '???' "$TMP/report" >&2; then
        fail "$what: a trace goes beyond the entry function"
    fi
}

run_variant() {
    local cc=$1 width=$2 options program object objects=()
    read -ra options <<<"$3"
    # DWARF 4, since memcheck of Debian 12 can't read the version 5 that clang writes.
    options+=("$width" -gdwarf-4 -DACO_USE_VALGRIND -I.)
    for object in aco.c acosw.S; do
        must "$cc $width $3: $object does not compile" \
            "$cc" "${options[@]}" "${C_WARNINGS[@]}" -c "$object" -o "$TMP/${object%.*}.o"
        objects+=("$TMP/${object%.*}.o")
    done
    for program in memcheck_clean memcheck_errors; do
        must "$cc $width $3: $program does not compile" \
            "$cc" "${options[@]}" "${C_WARNINGS[@]}" "tests/programs/$program.c" "${objects[@]}" \
            -o "$TMP/$program"
    done
    run_clean "$cc $width $3"
    run_errors "$cc $width $3"
}

have valgrind || skip "valgrind is needed"
find_compilers gcc clang
ct=0
for width in "${WIDTHS[@]}"; do
    if ! can_memcheck "$width"; then
        echo "$width: memcheck can't run such programs here, not tested"
        continue
    fi
    for cc in "${FOUND[@]}"; do
        variants=("${VARIANTS[@]}")
        [[ "$cc" != gcc ]] || variants+=("${ONLY_GCC[@]}")
        for variant in "${variants[@]}"; do
            run_variant "$cc" "$width" "$variant"
            ct=$((ct + 1))
        done
        echo "$cc $width: ${#variants[@]} variants"
    done
done
((ct)) || skip "memcheck can run nothing here: valgrind's header and libc6-dbg are needed"
