#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Cancellation of coroutines in C++, see cancel_user.cc: with the inline switch and with acosw(),
# under memcheck and AddressSanitizer. Each broken rule ends the process with a message.
#
# seconds: 12
# user

# shellcheck source=tests/harness.sh
. tests/harness.sh

HERE=extra/cancel

c_compiler_of() {
    if [[ "$1" == g++ ]]; then echo gcc; else echo clang; fi
}

# build CXX OPTION...: the program in $TMP/program.
build() {
    local cxx=$1 cc
    shift
    cc=$(c_compiler_of "$cxx")
    must "$cc $*: the library does not compile" "$cc" -gdwarf-4 "$@" "${C_WARNINGS[@]}" -I. \
        -c aco.c -o "$TMP/aco.o"
    must "$cc $*: acosw.S does not compile" "$cc" "$@" -I. -c acosw.S -o "$TMP/acosw.o"
    must "$cc $*: aco_cancel.c does not compile" "$cc" -gdwarf-4 "$@" "${C_WARNINGS[@]}" -I. \
        -c "$HERE/aco_cancel.c" -o "$TMP/cancel.o"
    must "$cc $*: without_tables.c does not compile" "$cc" "$@" -fno-exceptions \
        -fno-asynchronous-unwind-tables -fno-unwind-tables -c "$HERE/tests/without_tables.c" \
        -o "$TMP/without_tables.o"
    must "$cxx $*: the program does not compile" \
        "$cxx" -gdwarf-4 -std=c++11 "$@" "${WARNINGS[@]}" -I. \
        "$HERE/tests/cancel_user.cc" "$TMP"/{aco,acosw,cancel,without_tables}.o -o "$TMP/program"
}

# malloc() returns no zeros, so that nothing relies on them.
export GLIBC_TUNABLES=glibc.malloc.perturb=165

# check_end RULE MESSAGE: breaking the rule ends in abort(), with the message.
check_end() {
    run_to_death "${RUN[@]}" "$TMP/program" "$1"
    if [[ "$STATUS" -ne 134 ]] || ! grep -q "$2" "$TMP/said"; then
        cat "$TMP/said" >&2
        fail "$what: $1: status $STATUS, and not the message: $2"
    fi
}

# check CXX OPTION...
check() {
    local what="$*"
    build "$@"
    must "$what: the program fails" "${RUN[@]}" "$TMP/program"
    check_end swallow "aco_cancel: a catch block .* has swallowed the cancellation"
    check_end noexcept "^terminate called"
    check_end tables "aco_cancel: a function .* has no unwind table"
    echo "$what: works, and broken rules end in a message"
}

check_tools() {
    local cxx=$1
    if have valgrind; then
        build "$cxx" -O2 -DACO_USE_VALGRIND
        must "$cxx: memcheck complains" valgrind -q --error-exitcode=1 --leak-check=full \
            --show-leak-kinds=all --errors-for-leak-kinds=all "$TMP/program"
        echo "$cxx: memcheck finds nothing"
    fi
    build "$cxx" -O0 -fsanitize=address
    must "$cxx: AddressSanitizer complains" "$TMP/program"
    echo "$cxx: AddressSanitizer finds nothing"
}

# check_both CXX WIDTH
check_both() {
    local width
    read -ra width <<<"$2"
    compiles_cxx "${PROCESSOR:-$1 $2}" "$1" "${width[@]}" || return 0
    check "$1" "${width[@]}" -O2
    check "$1" "${width[@]}" -O0 -DACO_CONFIG_NO_INLINE_SWITCH -DACO_CONFIG_STRESS
}

check_foreign() {
    check_both clang++ "$2"
}

find_compilers g++ clang++
for cxx in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        check_both "$cxx" "$width"
    done
    check_tools "$cxx"
done
on_each_foreign check_foreign
tell_untested
