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
    check_names "$@"
    if [[ " $* " == *" -m32 "* ]]; then
        check_times "$@"
    fi
    echo "$*"
}

# check_times COMPILER OPTION...: programs for times of 64 bits call other names.
check_times() {
    local name
    for name in test_hooks test_settings test_processes; do
        must "$*: $name.c does not build for times of 64 bits" "$@" -std=gnu99 -g \
            -D_TIME_BITS=64 -D_FILE_OFFSET_BITS=64 "${C_WARNINGS[@]}" "${INCLUDE[@]}" -pthread \
            "$TESTS/$name.c" "$TMP"/*.o -o "$TMP/$name" -lcmocka -lutil -ldl
        must "$*: $name fails with times of 64 bits" "$TMP/$name"
    done
}

# Calls that wait, or of which those that wait must know; libc has some under more names.
readonly CALLS=(read readv pread preadv write writev pwrite pwritev recv recvfrom recvmsg recvmmsg
    send sendto sendmsg sendmmsg sendfile splice accept accept4 connect close dup2 dup3 shutdown poll
    ppoll select pselect epoll_wait epoll_pwait epoll_pwait2 sleep usleep nanosleep clock_nanosleep
    pause sigtimedwait sigwaitinfo sigwait getaddrinfo getnameinfo gethostbyname gethostbyname2
    gethostbyaddr wait waitpid wait3 wait4 waitid system pclose fsync fdatasync flock lockf open
    openat fcntl sched_yield ioctl setsockopt pthread_mutex_lock pthread_mutex_trylock
    pthread_mutex_timedlock pthread_mutex_clocklock pthread_mutex_unlock pthread_rwlock_rdlock
    pthread_rwlock_wrlock pthread_rwlock_tryrdlock pthread_rwlock_trywrlock
    pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock pthread_rwlock_clockrdlock
    pthread_rwlock_clockwrlock pthread_rwlock_unlock pthread_cond_wait pthread_cond_timedwait
    pthread_cond_clockwait pthread_cond_signal pthread_cond_broadcast pthread_join
    pthread_timedjoin_np pthread_clockjoin_np pthread_barrier_wait pthread_once sem_wait sem_trywait
    sem_timedwait sem_clockwait sem_post mtx_lock mtx_trylock mtx_timedlock mtx_unlock cnd_wait
    cnd_timedwait cnd_signal cnd_broadcast thrd_join thrd_sleep thrd_yield call_once
    pthread_getspecific pthread_setspecific pthread_key_create pthread_key_delete)

# check_names COMPILER OPTION...: each is hooked under all names that libc has for programs, also
# for buffers whose size is known, and offsets and times of 64 bits.
check_names() {
    local libc
    libc=$("$@" -print-file-name=libc.so.6)
    nm -D --defined-only "$libc" | sed -n 's/.* [TWi] \([^@]*\)@@GLIBC_[2-9].*/\1/p' |
        grep -E "^(__)?($(tr ' ' '|' <<<"${CALLS[*]}"))(64)?(_r|_2|_chk)?(64|_time64)?$" |
        sort -u >"$TMP/names"
    nm --defined-only "$TMP"/runtime_hooks_*.o | awk '{ print $3 }' | sort -u >"$TMP/hooked"
    (($(wc -l <"$TMP/names") >= ${#CALLS[@]})) || fail "libc has no names: $libc"
    comm -23 "$TMP/names" "$TMP/hooked" >"$TMP/missing"
    [[ ! -s $TMP/missing ]] || fail "$*: not hooked: $(tr '\n' ' ' <"$TMP/missing")"
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
