#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Programs written for libco work with the headers of compat, natively, for i386 and under
# sanitizers; the headers compile as C++ of every year; misuse ends in a message.
#
# parts: native others sanitized
# seconds: 15 30 30
# user: native

# shellcheck source=tests/harness.sh
. tests/harness.sh

readonly PROGRAMS=(test_calls test_waits echo_server ten_descriptors producer_consumer specific
    closures environment threads virtual_time)
readonly HEADERS=(compat/co_*.h)
readonly MESSAGES=(
    "co_resume: the coroutine runs, or waits for one that it resumed"
    "co_resume: the coroutine runs, or waits for one that it resumed"
    "co_release: the coroutine runs, or waits for one that it resumed"
    "co_reset: the coroutine runs, or waits for one that it resumed"
    "co_eventloop: a coroutine calls it"
    "co_resume: the coroutine is another thread's"
    "co_yield_ct: no coroutine runs"
    "co_cond_timedwait: no coroutine runs"
    "co_resume: no coroutine"
    "co_release: no coroutine"
    "aco_exit: it would skip destructors"
    "co_yield: no coroutine runs"
    "co_release: the coroutine waits for a lock or a helper thread: let it go on first"
    "co_reset: the coroutine waits for a lock or a helper thread: let it go on first"
)

# check C_COMPILER CXX_COMPILER OPTION...
check() {
    local name more cxx=$2
    CXX=$2 use_library aco_compat "$1" "${@:3}"
    shift 2
    for name in "${PROGRAMS[@]}"; do
        read -ra more < <(sed -n 's,^// build: ,,p' "compat/tests/$name.cc" | tr '\n' ' ' && echo)
        must "$cxx $*: $name.cc does not build" "$cxx" "$@" -std=c++11 -g "${WARNINGS[@]}" \
            -Icompat -pthread "compat/tests/$name.cc" "${OBJECTS[@]}" "${more[@]}" -ldl \
            -o "$TMP/$name"
        must "$cxx $*: $name fails" "${SANITIZED[@]}" "$TMP/$name"
    done
    echo "$cxx $*"
}

# The headers compile in every dialect of C++, without a warning.
check_headers() {
    local dialect header
    for dialect in c++98 gnu++98 c++11 c++17 c++20; do
        for header in "${HEADERS[@]}"; do
            must "$1 -std=$dialect: $header does not compile" "$1" -std="$dialect" \
                "${WARNINGS[@]}" -fsyntax-only -x c++ -include "$header" /dev/null
        done
    done
    must "$1 -std=c++98: closures do not compile" "$1" -std=c++98 -Wall -Wextra -Werror \
        -Icompat -fsyntax-only compat/tests/closures.cc
}

check_misuse() {
    local i
    must "misuse.cc does not build" "$1" -std=c++11 "${WARNINGS[@]}" -I. -Iruntime -Icompat \
        -pthread compat/tests/misuse.cc "${OBJECTS[@]}" -ldl -o "$TMP/misuse"
    for i in "${!MESSAGES[@]}"; do
        run_to_death "$TMP/misuse" "$i"
        if ((STATUS != 134)) || ! grep -q "^aco: ${MESSAGES[i]}" "$TMP/said"; then
            fail "misuse $i: status $STATUS, $(<"$TMP/said")"
        fi
    done
}

read -ra compiler <<<"$CC"
read -ra cxx_compiler <<<"$CXX"

check_native() {
    compiles_cxx "$CXX" "${cxx_compiler[@]}" || tell_untested
    check_headers "${cxx_compiler[@]}"
    check "${compiler[@]}" "${cxx_compiler[@]}" -O2
    check_misuse "${cxx_compiler[@]}"
    check "${compiler[@]}" "${cxx_compiler[@]}" -O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV \
        -DACO_CONFIG_STRESS
    tell_untested
}

check_others() {
    compiles_cxx "$CXX" "${cxx_compiler[@]}" || tell_untested
    find_compilers clang++
    check_headers clang++
    check clang clang++ -O2
    if [[ " ${WIDTHS[*]} " == *" -m32 "* ]] &&
        compiles_cxx "$CXX -m32" "${cxx_compiler[@]}" -m32; then
        check "${compiler[@]}" "${cxx_compiler[@]}" -m32 -O2
    fi
    tell_untested
}

check_sanitized() {
    compiles_cxx "$CXX" "${cxx_compiler[@]}" || tell_untested
    check "${compiler[@]}" "${cxx_compiler[@]}" -O1 -fsanitize=address,undefined \
        -fno-sanitize-recover=all
    check "${compiler[@]}" "${cxx_compiler[@]}" -O1 -fsanitize=thread
}

(($# == 0)) && set -- native others sanitized
for part; do
    "check_$part"
done
