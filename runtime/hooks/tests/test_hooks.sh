#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The hooks, linked and preloaded, natively, for i386 and under sanitizers. random_calls compares
# hooked calls with the kernel's: CT_STEPS=1000000 SEED=7 asks for more than the few of each run.
# Programs without tasks notice nothing; those that can't have hooks are told so.
#
# parts: native others

# shellcheck source=tests/harness.sh
. tests/harness.sh

need_cmocka
need_libraries

readonly TESTS=runtime/hooks/tests SEED=${SEED:-1} CT_STEPS=${CT_STEPS:-3000}
readonly LIBRARY=(runtime/*.c runtime/hooks/*.c extra/stack_pool/aco_stack_pool.c aco.c acosw.S)
readonly INCLUDE=(-I. -Iruntime -Iruntime/hooks -Iruntime/tests -Iextra/stack_pool)
read -ra compiler <<<"$CC"

# check CT_STEPS COMPILER OPTION...
check() {
    local ct=$1 name objects=() run=()
    shift
    for name in "${LIBRARY[@]}"; do
        objects+=("$TMP/${name//\//_}.o")
        must "$*: $name does not compile" "$@" -std=gnu99 -g "${C_WARNINGS[@]}" "${INCLUDE[@]}" \
            -pthread -c "$name" -o "${objects[-1]}"
    done
    for name in test_hooks test_settings random_calls; do
        must "$*: $name.c does not build" "$@" -std=gnu99 -g "${C_WARNINGS[@]}" "${INCLUDE[@]}" \
            -pthread "$TESTS/$name.c" "${objects[@]}" -o "$TMP/$name" -lcmocka -lutil -ldl
    done
    [[ $* != *-fsanitize* ]] || run=("${SANITIZED[@]}")
    must "$*: test_hooks fails" "${run[@]}" "$TMP/test_hooks"
    must "$*: test_settings fails" "${run[@]}" "$TMP/test_settings"
    must "$*: a hooked call differs" "${run[@]}" "$TMP/random_calls" "$ct" "$SEED"
    if [[ " $* " == *" -m32 "* ]]; then
        check_times "$@"
    fi
    echo "$*"
}

# check_times COMPILER OPTION...: programs for times of 64 bits call other names.
check_times() {
    local name
    for name in test_hooks test_settings; do
        must "$*: $name.c does not build for times of 64 bits" "$@" -std=gnu99 -g \
            -D_TIME_BITS=64 -D_FILE_OFFSET_BITS=64 "${C_WARNINGS[@]}" "${INCLUDE[@]}" -pthread \
            "$TESTS/$name.c" "$TMP"/*.o -o "$TMP/$name" -lcmocka -lutil -ldl
        must "$*: $name fails with times of 64 bits" "$TMP/$name"
    done
}

# The program alone knows the runtime; hooks come by LD_PRELOAD.
check_preloaded() {
    local name
    for name in test_hooks test_settings random_calls; do
        must "$name.c does not build for preloading" "${compiler[@]}" -std=gnu99 "${INCLUDE[@]}" \
            -pthread "$TESTS/$name.c" -L"$OUTPUT" -laco_hooks -laco_runtime -laco -lcmocka -lutil \
            -o "$TMP/$name"
    done
    export LD_LIBRARY_PATH=$OUTPUT
    must "test_hooks fails with libaco_hooks.so" "$TMP/test_hooks"
    must "test_settings fails with libaco_hooks.so" "$TMP/test_settings"
    must "a hooked call differs with libaco_hooks.so" "$TMP/random_calls" 300 "$SEED"
    must "a program is not reached by preloaded hooks" env LD_PRELOAD=libaco_hooks.so \
        "$TMP/sleeper"
    [[ $(LD_PRELOAD=libaco_hooks.so bash -c 'echo one | cat; (exit 3); echo $?') == $'one\n3' ]] ||
        fail "a shell does not work with hooks preloaded"
    unset LD_LIBRARY_PATH
    echo "preloaded"
}

# A program that knows nothing of hooks, and needs them: 100 tasks that sleep together.
build_sleeper() {
    cat >"$TMP/sleeper.c" <<'END'
#include "aco_runtime.h"
#include <unistd.h>

static int ct_asleep, ct_most;

static void *sleeps(void *arg)
{
    ct_asleep++;
    ct_most = ct_asleep > ct_most ? ct_asleep : ct_most;
    usleep(1000);
    ct_asleep--;
    return arg;
}

static void *first(void *arg)
{
    for (int i = 0; i < 100; i++) {
        aco_go(sleeps, arg);
    }
    return arg;
}

int main(void)
{
    return aco_run(NULL, first, NULL, NULL) != 0 || ct_most != 100;
}
END
    must "a program does not build" "${compiler[@]}" "${INCLUDE[@]}" -pthread "$@"
}

# Where hooks can't be had, or are hidden, a message says so.
check_messages() {
    build_sleeper "$TMP/sleeper.c" "${LIBRARY[@]}" -o "$TMP/linked" -ldl
    must "a program with the sources of the hooks" "$TMP/linked"
    if can_build "${compiler[@]}" -static; then
        build_sleeper -static "$TMP/sleeper.c" "${LIBRARY[@]}" -o "$TMP/static" -ldl
        "$TMP/static" 2>"$TMP/said" || true
        grep -q 'do not reach the hook of .*link dynamically' "$TMP/said" ||
            fail "no message about hooks in a static program: $(<"$TMP/said")"
    fi
    echo "messages"
}

check_native() {
    check "$CT_STEPS" "${compiler[@]}" -O2 -D_FORTIFY_SOURCE=2
    build_sleeper "$TMP/sleeper.c" -L"$OUTPUT" -laco_runtime -laco -o "$TMP/sleeper"
    check_preloaded
    check_messages
}

check_others() {
    if have clang; then
        check 500 clang -O0
    fi
    if [[ " ${WIDTHS[*]} " == *" -m32 "* ]]; then
        check 500 "${compiler[@]}" -m32 -O2
    fi
    check 500 "${compiler[@]}" -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
    check 300 "${compiler[@]}" -O1 -fsanitize=thread
}

(($# == 0)) && set -- native others
for part; do
    "check_$part"
done
