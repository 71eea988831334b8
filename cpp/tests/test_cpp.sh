#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The tests of aco.hpp, with gcc and clang, libstdc++ and libc++, as C++17, C++20 and C++23, for
# i386, and under sanitizers; and of the header itself: each of its parts compiles alone and without
# warnings, all of it without exceptions and RTTI, and in a short time; coroutine.hpp and
# generator.hpp need no runtime.
#
# parts: gcc others clang sanitized
# seconds: 20 20 40 60
# user: gcc

# shellcheck source=tests/harness.sh
. tests/harness.sh

compiles_cxx "$CXX" "$CXX" || tell_untested

readonly TESTS=(test_cpp_generators test_cpp_tasks test_cpp_sync test_cpp_futures test_cpp_stops)
readonly MOST_SECONDS=1.5

# try TEST CXX OPTION...
try() {
    local name=$1
    shift
    must "$*: $name.cc does not build" "$@" "${WARNINGS[@]}" "${INCLUDE[@]}" -pthread \
        "cpp/tests/$name.cc" -Icpp/tests "${OBJECTS[@]}" -o "$TMP/$name"
    must "$*: $name fails" "${SANITIZED[@]}" "$TMP/$name"
}

# try_all CXX OPTION...: tries TESTS as C++17, and those for C++20, of which one uses Boost.Asio if
# WITH_ASIO is set.
try_all() {
    local name asio=()
    for name in "${TESTS[@]}"; do
        try "$name" "$@" -std=c++17
    done
    if [[ -z ${WITH_ASIO:-} ]]; then
        :
    elif echo '#include <boost/asio.hpp>' | "$1" -x c++ -fsyntax-only - 2>/dev/null; then
        asio=(-DWITH_ASIO)
    else
        lack "no headers of Boost.Asio: apt-get install libboost-dev"
    fi
    try test_cpp_stops "$@" -std=c++20 # with the standard's
    try test_cpp_generators "$@" -std=c++20 # with ranges
    try test_cpp_await "$@" -std=c++20 "${asio[@]}"
    echo "$*"
}

# Each header compiles alone; the whole compiles in each dialect, and without exceptions and RTTI.
check_headers() {
    local cxx=$1 header dialect
    for header in cpp/aco/{base,coroutine,generator,stop,task,group,sync,channel,future}.hpp; do
        echo "#include \"$header\"" >"$TMP/alone.cc"
        must "$cxx: $header alone" "$cxx" -std=c++17 -pedantic "${WARNINGS[@]}" "${INCLUDE[@]}" \
            -fsyntax-only "$TMP/alone.cc"
    done
    echo '#include "aco.hpp"' >"$TMP/alone.cc"
    for dialect in gnu++17 c++20 c++2b; do
        must "$cxx -std=$dialect: aco.hpp" "$cxx" -std="$dialect" -pedantic "${WARNINGS[@]}" \
            "${INCLUDE[@]}" -fsyntax-only "$TMP/alone.cc"
    done
    for dialect in c++17 c++20 c++2b; do
        must "$cxx -std=$dialect: concepts.cc" "$cxx" -std="$dialect" "${WARNINGS[@]}" \
            "${INCLUDE[@]}" -fsyntax-only cpp/tests/concepts.cc
    done
    for dialect in c++17 c++20; do
        must "$cxx: aco.hpp without exceptions and RTTI" "$cxx" -std="$dialect" -fno-exceptions \
            -fno-rtti "${WARNINGS[@]}" "${INCLUDE[@]}" -fsyntax-only \
            cpp/tests/no_exceptions.cc
    done
    must_not "$cxx: aco.hpp compiles as C++14" "needs C\+\+17" "$cxx" -std=c++14 "${INCLUDE[@]}" \
        -fsyntax-only -include aco.hpp -x c++ /dev/null
    must_not "$cxx: aco.hpp compiles for stress" "does not work with ACO_CONFIG_STRESS" "$cxx" \
        -std=c++17 -DACO_CONFIG_STRESS "${INCLUDE[@]}" -fsyntax-only -include aco.hpp \
        -x c++ /dev/null
    echo "$cxx: headers"
}

# The compiler warns of each result that a caller drops by mistake.
check_nodiscard() {
    local source=cpp/tests/nodiscard.cc line ct=0
    must "$1: $source" "$1" -std=c++20 "${WARNINGS[@]}" -Wno-error "${INCLUDE[@]}" -fsyntax-only \
        "$source"
    while IFS=: read -r line _; do
        grep -qE "^$source:$line:.*nodiscard" "$TMP/said" ||
            fail "$1: $(sed -n "${line}s/^ *//p" "$source") may drop its result"
        ct=$((ct + 1))
    done < <(grep -n '; */. dropped' "$source")
    ((ct > 15)) || fail "$source drops $ct results"
}

# check_death WHAT ARGUMENT MESSAGE: the program without exceptions aborts with a message.
check_death() {
    run_to_death "$TMP/without" "$2"
    [[ $STATUS -eq 134 ]] || fail "$1 ends in $STATUS"
    grep -q "$3" "$TMP/said" || fail "$1 ends without its message: $(<"$TMP/said")"
}

# A program of files with and without exceptions runs, in whichever order it is linked.
check_mixed() {
    local options=("$1" -std=c++17 -O0 "${WARNINGS[@]}" "${INCLUDE[@]}" -pthread)
    local objects with=$TMP/with.o
    must "$1: mixed.cc" "${options[@]}" -c cpp/tests/mixed.cc -o "$with"
    must "$1: mixed.cc without exceptions" "${options[@]}" -fno-exceptions -c cpp/tests/mixed.cc \
        -o "$TMP/without.o"
    for objects in "$with $TMP/without.o" "$TMP/without.o $with"; do
        read -ra objects <<<"$objects"
        must "$1: a mixed program" "${options[@]}" "${objects[@]}" "${OBJECTS[@]}" -o "$TMP/mixed"
        must "$1: a mixed program, ${objects[0]##*/} first, fails" "$TMP/mixed"
    done
}

# A program of files in C++17 and in C++20 runs, in whichever order it is linked.
check_dialects() {
    local objects dialect
    for dialect in 17 20; do
        must "$1: dialects.cc as C++$dialect" "$1" -std=c++$dialect -O0 "${WARNINGS[@]}" \
            "${INCLUDE[@]}" -pthread -c cpp/tests/dialects.cc -o "$TMP/$dialect.o"
    done
    for objects in "$TMP/17.o $TMP/20.o" "$TMP/20.o $TMP/17.o"; do
        read -ra objects <<<"$objects"
        must "$1: a program of two dialects" "$1" -pthread "${objects[@]}" "${OBJECTS[@]}" \
            -o "$TMP/dialects"
        must "$1: a program of two dialects, ${objects[0]##*/} first, fails" "$TMP/dialects"
    done
}

# A program without exceptions and RTTI runs; and generators without the runtime.
check_without() {
    local cxx=$1
    must "$cxx: a program without exceptions" "$cxx" -std=c++17 -O1 -fno-exceptions -fno-rtti \
        "${INCLUDE[@]}" -pthread cpp/tests/no_exceptions.cc "${OBJECTS[@]}" -o "$TMP/without"
    must "$cxx: a program without exceptions fails" "$TMP/without"
    check_death "$cxx: without exceptions, a wait that fails" fails \
        'aco: aco::sleep_for: .*use the calls of aco_runtime.h'
    check_death "$cxx: when_all() of a task that was joined" misuses \
        'aco: aco::when_all: it was joined or moved from: use a task once'
    check_death "$cxx: a coroutine that resumes itself" 'resumes itself' \
        'aco: aco::coroutine::resume: it runs, or waits for one that it resumed'
    check_death "$cxx: a generator that iterates over itself" 'iterates over itself' \
        'aco: aco::generator: it runs, or waits for one that it resumed'
    check_death "$cxx: a coroutine that yields no value" 'yields no value' \
        'aco: aco::coroutine::resume: the coroutine has called aco_yield(): yield a value'
    check_death "$cxx: a coroutine that yields for another" 'yields for another' \
        'aco: aco::coroutine: yield: another coroutine runs: only the one that has it may call it'
    check_death "$cxx: a coroutine that resumes another on its stack" 'resumes on its stack' \
        'aco: aco_resume: the owner of its share stack waits for the caller'
    check_death "$cxx: a generator on a share stack" 'generates on a share stack' \
        'aco: aco::generator: its values lie on its stack: give it a pool, and no share stack'
    check_death "$cxx: a thread that resumes another's generator" "resumes another's" \
        "aco: aco::generator: its stack is another thread's"
    check_death "$cxx: a thread that destroys another's generator" "destroys another's" \
        "aco: the destructor of an aco::coroutine or aco::generator: its stack is another thread's"
    check_mixed "$cxx"
    check_dialects "$cxx"
    use_library aco "${compiler[@]}" -O2
    must "$cxx: a generator needs the runtime" "$cxx" -std=c++17 -DWITHOUT_RUNTIME "${INCLUDE[@]}" \
        -Icpp cpp/tests/no_exceptions.cc "${OBJECTS[@]}" -o "$TMP/without"
    must "$cxx: a generator without the runtime fails" "$TMP/without"
}

# The processor time to compile a file that only includes the header, the best of three.
check_time() {
    local cxx=$1 best=999 seconds TIMEFORMAT='%U'
    echo '#include "aco.hpp"' >"$TMP/empty.cc"
    for _ in 1 2 3; do
        seconds=$({ time "$cxx" -std=c++20 -O2 "${INCLUDE[@]}" -c "$TMP/empty.cc" \
            -o "$TMP/empty.o"; } 2>&1)
        best=$(awk -v a="$best" -v b="$seconds" 'BEGIN { print a < b ? a : b }')
    done
    awk -v s="$best" -v most="$MOST_SECONDS" 'BEGIN { exit s > most }' ||
        fail "$cxx: a file that includes aco.hpp takes $best s"
    echo "$cxx: aco.hpp compiles in $best s"
}

check_with() {
    use_library aco_runtime "${compiler[@]}" -O2
    check_headers "$1"
    check_nodiscard "$1"
    check_time "$1"
    try_all "$1" -O1
    check_without "$1"
}

# check_i386 CXX
check_i386() {
    [[ " ${WIDTHS[*]} " == *" -m32 "* ]] && compiles_cxx "$1 -m32" "$1" -m32 || return 0
    use_library aco_runtime "${compiler[@]}" -m32 -O2
    try_all "$1" -m32 -O1
}

read -ra compiler <<<"$CC"

check_gcc() {
    WITH_ASIO=1 check_with "$CXX"
}

check_others() {
    local name
    use_library aco_runtime "${compiler[@]}" -O2
    for name in "${TESTS[@]}" test_cpp_await; do
        try "$name" "$CXX" -O1 -std=c++2b
    done
    echo "$CXX: C++23"
    use_library aco_runtime "${compiler[@]}" -O2 -DACO_CONFIG_NO_INLINE_SWITCH
    try test_cpp_generators "$CXX" -std=c++17 -O1 -DACO_CONFIG_NO_INLINE_SWITCH
    check_i386 "$CXX"
    find_compilers clang++
    check_i386 clang++
}

check_libcxx() {
    if echo '#include <vector>' | clang++ -stdlib=libc++ -x c++ -fsyntax-only - 2>/dev/null; then
        use_library aco_runtime "${compiler[@]}" -O2
        try_all clang++ -O1 -stdlib=libc++
    else
        lack "no headers of libc++: apt-get install libc++-dev libc++abi-dev"
    fi
}

# clang, also with libc++, and its newest version here.
check_clang() {
    local newest
    find_compilers clang++
    check_with clang++
    check_libcxx
    newest=$(compgen -c clang++- | grep -E '^clang\+\+-[0-9]+$' | sort -t - -k 2 -n | tail -n 1)
    if [[ -n $newest && $(readlink -f "$(command -v "$newest")") != \
        $(readlink -f "$(command -v clang++)") ]]; then
        use_library aco_runtime "${compiler[@]}" -O2
        try_all "$newest" -O1
    fi
}

check_sanitized() {
    use_library aco_runtime "${compiler[@]}" -O1 -fsanitize=address,undefined \
        -fno-sanitize-recover=all
    # gcc 12 takes a std::stop_source for uninitialized here.
    WITH_ASIO=1 try_all "$CXX" -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
        -Wno-maybe-uninitialized
    use_library aco_runtime "${compiler[@]}" -O1 -fsanitize=thread
    try_all "$CXX" -O1 -fsanitize=thread
}

(($# == 0)) && set -- gcc others clang sanitized
for part; do
    "check_$part"
done
tell_untested
