#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Sanitizers say nothing of programs without an error, and report those in coroutines at the right
# line: AddressSanitizer with its search for leaks, UndefinedBehaviorSanitizer and ThreadSanitizer,
# of gcc and of clang. Nothing but -fsanitize=... is needed for that.
# parts: gcc clang
# seconds: 60 50

# shellcheck source=tests/harness.sh
. tests/harness.sh

# Compilers, sanitizers, levels, widths, control words and modes of the switch, of which any two
# meet in some build where they can. After a bar: the C++ compiler, where exceptions are tried too.
readonly BUILDS=(
    "gcc -m64 -O0 -fsanitize=address|g++"
    "gcc -m32 -O2 -fsanitize=address -DACO_CONFIG_SHARE_FPU_MXCSR_ENV -DACO_CONFIG_STRESS|"
    "gcc -m64 -O2 -fsanitize=address,undefined -DACO_CONFIG_SHARE_FPU_MXCSR_ENV|g++"
    "gcc -m32 -O0 -fsanitize=address,undefined -DACO_CONFIG_NO_INLINE_SWITCH|"
    "gcc -m64 -O2 -fsanitize=undefined -DACO_CONFIG_STRESS|"
    "gcc -m32 -O0 -fsanitize=undefined|"
    "gcc -m64 -O2 -fsanitize=thread|g++"
    "gcc -m64 -O0 -fsanitize=thread -DACO_CONFIG_SHARE_FPU_MXCSR_ENV -DACO_CONFIG_NO_INLINE_SWITCH|"
    "clang -m64 -O2 -fsanitize=address -DACO_USE_ASAN -DACO_CONFIG_NO_INLINE_SWITCH|"
    "clang -m32 -O0 -fsanitize=address|clang++"
    "clang -m64 -O2 -fsanitize=address -DACO_CONFIG_STRESS|"
    "clang -m32 -O2 -fsanitize=address,undefined|clang++"
    "clang -m64 -O0 -fsanitize=address,undefined -DACO_CONFIG_STRESS|"
    "clang -m64 -O2 -fsanitize=undefined -DACO_CONFIG_SHARE_FPU_MXCSR_ENV|"
    "clang -m32 -O0 -fsanitize=undefined -DACO_CONFIG_NO_INLINE_SWITCH|"
    "clang -m64 -O0 -fsanitize=thread -DACO_CONFIG_STRESS|clang++"
    "clang -m64 -O2 -fsanitize=thread|"
)

# The acts of sanitized_clean under all sanitizers, under AddressSanitizer and its search for leaks,
# and under ThreadSanitizer.
readonly STACK_ACTS=(walk walk_nested walk_in_threads end_often yield_often)
readonly ADDRESS_ACTS=(keep_nothing switch_untold)
readonly LEAK_ACTS=(return_with_holders exit_in_coroutine exit_in_child
    return_while_a_thread_is_in_a_coroutine)
readonly THREAD_ACTS=(keep_no_fiber)

# A report of each error of sanitized_errors must match these, its lines joined; @ stands for the
# place of the error.
readonly CALLED="[^#]*#1 [^#]*makes_error"
readonly LEAKED="Direct leak of 20 byte\(s\) in 1 .*@.*: 20 byte\(s\) leaked in 1 allocation"
declare -rA REPORTS=(
    [overflow_stack]="stack-buffer-overflow .*#0 [^#]*@$CALLED.*'array' .*overflows"
    [overflow_stack_after_restore]="stack-buffer-overflow .*#0 [^#]*@$CALLED.*'array' .*overflows"
    [overflow_caller_after_restore]="stack-buffer-overflow .*#0 [^#]*@[^#]*#1 [^#]*overflow_caller"
    [overflow_heap]="heap-buffer-overflow on .*#0 [^#]*@$CALLED"
    [use_after_free]="heap-use-after-free on .*#0 [^#]*@$CALLED"
    [use_after_return]="stack-use-after-return on .*#0 [^#]*@$CALLED"
    [use_after_return_after_resets]="stack-use-after-return on .*#0 [^#]*@$CALLED"
    [save_stack_in_freed_memory]="heap-use-after-free on .*look_at_save_stack .*@"
    [leak]=$LEAKED
    [leak_of_main]=$LEAKED
    [leak_where_share_stack_was]=$LEAKED
    [leak_where_fake_stack_was]=$LEAKED
    [leak_where_fake_stack_of_ended_was]=$LEAKED
    [overflow_integer]="@:[0-9]+: runtime error: signed integer overflow"
    [race]="data race .*#0 race [^#]*@$CALLED.*#0 race [^#]*@$CALLED"
)
readonly ADDRESS_ERRORS=(overflow_stack overflow_stack_after_restore overflow_caller_after_restore
    overflow_heap use_after_free)

export UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=atexit_sleep_ms=0

# Lets ASan put locals on fake stacks (1) or not (0).
set_fake_stacks() {
    export ASAN_OPTIONS="detect_stack_use_after_return=$1:detect_leaks=$LEAKS:allow_addr2line=1"
}

# Whether programs of these words of a build can be made and run, and in LEAKS, whether leaks can
# be searched for, which needs the right to trace.
can_check() {
    for LEAKS in 1 0; do
        set_fake_stacks 0
        if can_run "$@"; then
            ((LEAKS)) || echo "leaks can't be searched for, not tested"
            return
        fi
    done
    return 1
}

# build COMPILER SOURCE PROGRAM OPTION...: with the library's objects.
build() {
    local compiler=$1 source=$2 program=$3
    shift 3
    must "$what: $source does not compile" "$compiler" "$@" "$source" "$TMP/aco.o" "$TMP/acosw.o" \
        -o "$TMP/$program" -lpthread
}

# Runs a program that must end well and say nothing.
check_silence() {
    must "$what: fails: $* (ASAN_OPTIONS=$ASAN_OPTIONS)" "${SANITIZED[@]}" "$@"
    [[ ! -s "$TMP/said" ]] || fail "$what: $* says: $(head -n 5 "$TMP/said")"
}

check_error() {
    local error=$1 source=tests/programs/sanitized_errors.c line report pattern
    line=$(awk -v mark="/* $error */" 'index($0, mark) { print NR }' "$source")
    pattern=${REPORTS[$error]//@/sanitized_errors\\.c:$line}
    run_to_death "${SANITIZED[@]}" "$TMP/errors" "$error"
    report=$(tr '\n' ' ' <"$TMP/said")
    if [[ "$STATUS" -eq 0 ]] || [[ ! $report =~ $pattern ]]; then
        head -n 40 "$TMP/said" >&2
        fail "$what: $error at line $line: status $STATUS, and no report that matches $pattern"
    fi
}

# The acts and errors of the sanitizers of a build.
check_clean() {
    local act acts=("${STACK_ACTS[@]}")
    if [[ $what == *address* ]]; then
        acts+=("${ADDRESS_ACTS[@]}")
        ((LEAKS == 0)) || acts+=("${LEAK_ACTS[@]}")
    elif [[ $what == *thread* ]]; then
        acts+=("${THREAD_ACTS[@]}")
    fi
    for act in "${acts[@]}"; do
        check_silence "$TMP/clean" "$act"
    done
}

check_errors() {
    local error errors=()
    case $what in
    *address,undefined*) errors=(overflow_caller_after_restore use_after_free overflow_integer) ;;
    *address*STRESS*) errors=("${ADDRESS_ERRORS[@]}") ;;
    *address*) errors=("${ADDRESS_ERRORS[@]}" save_stack_in_freed_memory) ;;
    *undefined*) errors=(overflow_integer) ;;
    *thread*) errors=(race) ;;
    esac
    if [[ $what == *address* && $LEAKS == 1 ]]; then
        errors+=(leak leak_of_main leak_where_share_stack_was)
    fi
    if [[ $what == *address* && $ASAN_OPTIONS == *return=1* ]]; then
        errors+=(use_after_return use_after_return_after_resets)
        ((LEAKS == 0)) || errors+=(leak_where_fake_stack_was leak_where_fake_stack_of_ended_was)
    fi
    for error in "${errors[@]}"; do
        check_error "$error"
    done
}

# Objects and exceptions in coroutines, and one that leaves the entry function.
check_exceptions() {
    check_silence "$TMP/cxx"
    run_to_death "${SANITIZED[@]}" "$TMP/cxx" throw
    [[ $STATUS == 134 && $(<"$TMP/said") == *"terminate called"* ]] ||
        fail "$what: an exception that leaves an entry function: status $STATUS"
}

# check_build C++-COMPILER COMPILER OPTION...
check_build() {
    local what=$2\ ${*:3} cxx=$1 cc=$2 fake_stacks=0
    shift 2
    # Reports need names and lines of functions, but not of variables, which take twice as long.
    local options=("$@" -g1 -fno-sanitize-recover=all -I.)
    must "$what: the library does not compile" \
        "$cc" "${options[@]}" "${C_WARNINGS[@]}" -c aco.c -o "$TMP/aco.o"
    must "$what: the switch does not compile" "$cc" "${options[@]}" -c acosw.S -o "$TMP/acosw.o"
    build "$cc" tests/programs/sanitized_clean.c clean "${options[@]}" "${C_WARNINGS[@]}"
    build "$cc" tests/programs/sanitized_errors.c errors "${options[@]}" "${C_WARNINGS[@]}"
    if [[ -n "$cxx" ]]; then
        build "$cxx" tests/programs/cxx_user.cc cxx "${options[@]}" -std=c++11
    fi
    for fake_stacks in 0 1; do
        set_fake_stacks "$fake_stacks"
        check_clean
        check_errors
        [[ -z "$cxx" ]] || check_exceptions
        [[ $what == *address* ]] || break
    done
    echo "$what${cxx:+ ($cxx)}"
}

ct_builds=0
PARTS=("$@")
(($#)) || PARTS=(gcc clang)
find_compilers "${PARTS[@]}"
[[ " ${FOUND[*]} " != *" clang "* ]] || need llvm-symbolizer:llvm
for build in "${BUILDS[@]}"; do
    read -ra words <<<"${build%|*}"
    cxx=${build#*|}
    [[ " ${FOUND[*]} " == *" ${words[0]} "* && " ${WIDTHS[*]} " == *" ${words[1]} "* ]] || continue
    if ! can_check "${words[@]}"; then
        echo "${words[*]}: such programs can't be made or run, not tested"
        continue
    fi
    [[ -z "$cxx" ]] || compiles_cxx "$cxx ${words[1]}" "$cxx" "${words[1]}" || cxx=
    check_build "$cxx" "${words[@]}"
    ct_builds=$((ct_builds + 1))
done
((ct_builds)) || skip "no compiler has a sanitizer"
tell_untested
