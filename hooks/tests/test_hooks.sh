#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The hooks, linked and preloaded, in builds that make.sh doesn't make: tests that need OpenSSL or a
# library of their own, buffers whose size is known, times of 64 bits on i386, clang, sanitizers,
# memcheck.
# random_calls compares hooked calls with the kernel's: CT_STEPS=1000000 SEED=7 asks for more than
# the few of each run. Each call is hooked under all its names; programs without tasks notice
# nothing; programs that can't have hooks get a message.
#
# parts: native others sanitized memcheck
# seconds: 20 30 60 40
# user: native

# shellcheck source=tests/harness.sh
. tests/harness.sh

need_cmocka
need_libraries

readonly FOLDER=hooks/tests
readonly TESTS=("$FOLDER"/{test,random}_*.c)
readonly TIMES_TESTS=("$FOLDER"/test_{hooks,settings,processes,locks,threads,c11,queues,shared}.c)
read -ra compiler <<<"$CC"

# Runs a program, perhaps with a sanitizer or under MEMCHECK. The child of a test makes threads.
MEMCHECK=()
run() {
    TSAN_OPTIONS=die_after_fork=0 "${SANITIZED[@]}" "${MEMCHECK[@]}" "$@"
}

has_openssl() {
    echo '#include <openssl/ssl.h>' | "$@" -x c -fsyntax-only - 2>/dev/null
}

# check_with COMPILER OPTION...: builds and runs PROGRAMS.
check_with() {
    local source name
    use_library aco_hooks "$@"
    for source in "${PROGRAMS[@]}"; do
        name=$(basename "$source" .c)
        [[ $name != test_keys ]] || has_openssl "$@" || continue
        use_program "$source" "$@"
        run_arguments "$name" run "$TMP/$name"
    done
    check_names "$@"
    echo "$*"
}

# Calls that wait, or that calls that wait must notice; libc has some under more names.
readonly CALLS=(read readv pread preadv write writev pwrite pwritev recv recvfrom recvmsg recvmmsg
    send sendto sendmsg sendmmsg sendfile splice accept accept4 connect close dup2 dup3 shutdown
    poll ppoll select pselect epoll_wait epoll_pwait epoll_pwait2 sleep usleep nanosleep
    clock_nanosleep pause sigtimedwait sigwaitinfo sigwait getaddrinfo getnameinfo gethostbyname
    gethostbyname2 gethostbyaddr wait waitpid wait3 wait4 waitid system pclose fsync fdatasync flock
    lockf open openat fcntl sched_yield ioctl setsockopt pthread_mutex_lock pthread_mutex_trylock
    pthread_mutex_timedlock pthread_mutex_clocklock pthread_mutex_unlock pthread_rwlock_rdlock
    pthread_rwlock_wrlock pthread_rwlock_tryrdlock pthread_rwlock_trywrlock
    pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock pthread_rwlock_clockrdlock
    pthread_rwlock_clockwrlock pthread_rwlock_unlock pthread_cond_wait pthread_cond_timedwait
    pthread_cond_clockwait pthread_cond_signal pthread_cond_broadcast pthread_join
    pthread_timedjoin_np pthread_clockjoin_np pthread_barrier_wait pthread_once sem_wait sem_trywait
    sem_timedwait sem_clockwait sem_post mtx_lock mtx_trylock mtx_timedlock mtx_unlock cnd_wait
    cnd_timedwait cnd_signal cnd_broadcast thrd_join thrd_sleep thrd_yield call_once
    pthread_getspecific pthread_setspecific pthread_key_create pthread_key_delete eventfd_read
    eventfd_write preadv2 preadv64v2 pwritev2 pwritev64v2 tee vmsplice tcdrain sigsuspend mq_send
    mq_receive mq_timedsend mq_timedreceive msgsnd msgrcv semop semtimedop aio_suspend gai_suspend
    pthread_spin_lock tss_create tss_delete tss_get tss_set pthread_exit thrd_exit longjmp _longjmp
    siglongjmp syscall _Fork)

# check_names COMPILER OPTION...: each call is hooked under all names that libc has for programs,
# also for buffers whose size is known, and for offsets and times of 64 bits.
check_names() {
    local libc
    libc=$("$@" -print-file-name=libc.so.6)
    nm -D --defined-only "$libc" | sed -n 's/.* [TWi] \([^@]*\)@@GLIBC_[2-9].*/\1/p' |
        grep -E "^(__)?($(tr ' ' '|' <<<"${CALLS[*]}"))(64)?(_r|_2|_chk)?(64|_time64)?$" |
        sort -u >"$TMP/names"
    printf '%s\n' "${OBJECTS[@]}" | grep '\.o$' | xargs nm --defined-only |
        awk '{ print $3 }' | sort -u >"$TMP/hooked"
    (($(wc -l <"$TMP/names") >= ${#CALLS[@]})) || fail "libc has no names: $libc"
    comm -23 "$TMP/names" "$TMP/hooked" >"$TMP/missing"
    [[ ! -s $TMP/missing ]] || fail "$*: not hooked: $(tr '\n' ' ' <"$TMP/missing")"
}

# The program alone knows the runtime; hooks come by LD_PRELOAD.
check_preloaded() {
    local name
    for name in test_hooks test_settings random_calls; do
        must "$name.c does not build for preloading" "${compiler[@]}" -std=gnu99 "${INCLUDE[@]}" \
            -pthread "$FOLDER/$name.c" -L"$OUTPUT" -laco_hooks -laco_runtime -laco -lcmocka -lutil \
            -o "$TMP/$name"
    done
    export LD_LIBRARY_PATH=$OUTPUT
    must "test_hooks fails with libaco_hooks.so" "$TMP/test_hooks"
    must "test_settings fails with libaco_hooks.so" "$TMP/test_settings"
    must "a hooked call differs with libaco_hooks.so" "$TMP/random_calls" 300 "${SEED:-1}"
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

# A message says where hooks can't work, or are hidden.
check_messages() {
    build_sleeper "$TMP/sleeper.c" "${OBJECTS[@]}" -o "$TMP/linked"
    must "a program with the sources of the hooks" "$TMP/linked"
    if can_build "${compiler[@]}" -static; then
        build_sleeper -static "$TMP/sleeper.c" "${OBJECTS[@]}" -o "$TMP/static"
        run_to_death "$TMP/static"
        [[ $STATUS == 134 && $(<"$TMP/said") == "aco_hooks: "*"-static"*"link dynamically" ]] ||
            fail "a static program ends with $STATUS: $(<"$TMP/said")"
    fi
    echo "messages"
}

# check_answers FILE READ LOCK [VARIABLE=VALUE]: a library with this file name gets these answers.
check_answers() {
    cp "$TMP/libanswering.so" "$TMP/$1"
    must "calls of $1 are not answered" env "${4:-SEED=1}" "$TMP/test_answers" library "$TMP/$1"
    [[ $(<"$TMP/said") == "read $2"$'\n'"syscall $2"$'\n'"lock $3" ]] ||
        fail "$* gets: $(<"$TMP/said")"
}

check_all_answers() {
    local variable=ACO_HOOKS_ON_DEADLINE value
    use_program "$FOLDER/test_answers.c" "${compiler[@]}" -O2
    must "answering.c does not build" "${compiler[@]}" -O2 -std=gnu11 "${C_WARNINGS[@]}" -shared \
        -fPIC "$FOLDER/answering.c" -o "$TMP/libanswering.so"
    check_answers libanswering.so.1 error error
    check_answers libzmq.so.5 EINTR waits
    check_answers libnanomsg.so.5 EINTR waits
    check_answers libuv.so.1 waits waits
    check_answers libevent-2.1.so.7 waits waits
    check_answers libtevent.so.0 waits waits
    check_answers libglib-2.0.so.0 waits waits
    check_answers libgio-2.0.so.0 waits waits
    check_answers libpython3.11.so.1.0 error waits
    check_answers libnng.so.1 error waits
    check_answers libdb-5.3.so error waits
    check_answers libzmq.so.5 error error "$variable=libuv=EINTR  libzmq=error"
    check_answers libanswering.so.1 EINTR waits "$variable=libanswering=EINTR"
    check_answers libanswering.so.1 waits waits "$variable= lib=error liban=wait "
    check_answers libanswering.so.1 error waits "$variable=libanswering=locks-wait"
    for value in libanswering libanswering= =wait libanswering=perhaps libanswering=waits; do
        must "a bad $variable ends a program" env "$variable=$value" "$TMP/test_answers" library \
            "$TMP/libanswering.so"
        [[ $(<"$TMP/said") == "aco_hooks: $variable has $value: name a library"*"read error"* ]] ||
            fail "$variable=$value gets: $(<"$TMP/said")"
    done
    echo "answers"
}

check_native() {
    local name
    has_openssl "${compiler[@]}" || lack "no OpenSSL: apt-get install libssl-dev"
    PROGRAMS=("$FOLDER"/test_{keys,names}.c)
    check_with "${compiler[@]}" -O2
    must "test_keys sees no error where it should" "$TMP/test_keys" shared
    for name in test_hooks test_settings random_calls; do
        use_program "$FOLDER/$name.c" "${compiler[@]}" -O2 -D_FORTIFY_SOURCE=2
        must "$name fails with _FORTIFY_SOURCE" "$TMP/$name" "${CT_STEPS:-300}" "${SEED:-1}"
    done
    build_sleeper "$TMP/sleeper.c" -L"$OUTPUT" -laco_runtime -laco -o "$TMP/sleeper"
    check_messages
    check_all_answers
    check_preloaded
}

check_others() {
    PROGRAMS=("${TESTS[@]}")
    find_compilers clang
    check_with clang -O2
    if [[ " ${WIDTHS[*]} " == *" -m32 "* ]]; then # calls have other names
        use_library aco_hooks "${compiler[@]}" -m32 -O2
        check_names "${compiler[@]}" -m32
        check_times "${compiler[@]}" -m32 -O2
    fi
}

# check_times COMPILER OPTION...: programs for times of 64 bits call other names.
check_times() {
    local source
    for source in "${TIMES_TESTS[@]}"; do
        use_program "$source" "$@" -D_TIME_BITS=64 -D_FILE_OFFSET_BITS=64
        must "$*: $source fails with times of 64 bits" "$TMP/$(basename "$source" .c)"
    done
    echo "$*: times of 64 bits"
}

check_sanitized() {
    PROGRAMS=("${TESTS[@]}")
    check_with "${compiler[@]}" -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
    check_with "${compiler[@]}" -O1 -fsanitize=thread
}

# All but tests that make system calls which memcheck does not know, or with bad memory, or that use
# up the descriptors, some of which it has for itself. libc does not free its own: that has faults.
readonly WITHOUT_MEMCHECK='/(test_(answers|calls|futex|hooks|processes|queues)|random_calls)\.c$'

check_memcheck() {
    have valgrind || lack "no valgrind: apt-get install valgrind"
    MEMCHECK=(valgrind -q --error-exitcode=9 --run-libc-freeres=no)
    mapfile -t PROGRAMS < <(printf '%s\n' "${TESTS[@]}" | grep -vE "$WITHOUT_MEMCHECK")
    check_with "${compiler[@]}" -O2 -DACO_USE_VALGRIND
    MEMCHECK=()
}

(($# == 0)) && set -- native others sanitized memcheck
for part; do
    "check_$part"
done
