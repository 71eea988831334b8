#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Exceptions across yields, see exceptions_user.cc: with libstdc++, with libc++ if it is installed,
# and under AddressSanitizer, which also finds leaks. C programs get no reference to a C++ runtime.
#
# user

# shellcheck source=tests/harness.sh
. tests/harness.sh

HERE=extra/exceptions

# check "CXX OPTION..." OPTION...: builds the program and runs it. The options in the first argument
# are for C++ only.
check() {
    local cxx cc=gcc source objects=()
    read -r -a cxx <<<"$1"
    [[ "${cxx[0]}" == g++ ]] || cc=clang
    local what="$*"
    shift
    for source in aco.c acosw.S extra/cancel/aco_cancel.c "$HERE/aco_exceptions.c"; do
        objects+=("$TMP/${source##*/}.o")
        must "$what: $source does not compile" \
            "$cc" "$@" "${C_WARNINGS[@]}" -I. -c "$source" -o "${objects[-1]}"
    done
    must "$what: the program does not compile" "${cxx[@]}" -std=c++11 "$@" "${WARNINGS[@]}" -I. \
        "$HERE/tests/exceptions_user.cc" "${objects[@]}" -o "$TMP/program"
    must "$what: the program fails" "${RUN[@]}" "$TMP/program"
    echo "$what: works"
}

# check_c COMPILER OPTIONS: a C program that makes all calls links and works without a C++ runtime.
check_c() {
    local compile
    read -ra compile <<<"$1 $2"
    cat >"$TMP/user.c" <<'END'
#include "extra/exceptions/aco_exceptions.h"
static void yields(void)
{
    aco_exceptions_yield();
    aco_exit();
}
int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    aco_share_stack_t *stack = aco_share_stack_new(0);
    aco_t *co = aco_create(main_co, stack, 0, yields, NULL);
    aco_exceptions_resume(co);
    aco_exceptions_resume(co);
    return !co->is_end;
}
END
    must "the C program does not compile" "${compile[@]}" -O2 "${C_WARNINGS[@]}" -I. \
        "$TMP/user.c" aco.c acosw.S "$HERE/aco_exceptions.c" -o "$TMP/program"
    must "the C program fails" "${RUN[@]}" "$TMP/program"
    echo "${PROCESSOR:-$1}: C works without a C++ runtime"
}

# check_both CXX WIDTH
check_both() {
    local width
    read -ra width <<<"$2"
    compiles_cxx "${PROCESSOR:-$1 $2}" "$1" "${width[@]}" || return 0
    check "$1" "${width[@]}" -O0
    check "$1" "${width[@]}" -O2 -DACO_CONFIG_STRESS
}

check_foreign() {
    check_c "$1" "$2"
    check_both clang++ "$2"
}

check_c "$CC" ""
on_each_foreign check_foreign
find_compilers g++ clang++
for cxx in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        check_both "$cxx" "$width"
    done
    check "$cxx" -O0 -g -fsanitize=address
done
if have clang++ && echo '#include <string>' |
    clang++ -stdlib=libc++ -x c++ -fsyntax-only - 2>/dev/null; then
    check "clang++ -stdlib=libc++" -O2
else
    echo "libc++: not found, not tested"
fi
tell_untested
