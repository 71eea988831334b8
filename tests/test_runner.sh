#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The runners, in a copy of what they need: they do what they can where packages are missing, list
# what they leave out, start the longest test first, and can fail: for a failing test, no test at
# all, words that they don't know, and, after -i all, a test that skips itself for no reason of a
# list. malloc() fills memory for all tests. They build where OUTPUT says, too.
#
# seconds: 30
set -euo pipefail
unset OUTPUT MALLOC_PERTURB_
: "${CC:=gcc}" "${CXX:=g++}"
trap 'echo "line $LINENO: $BASH_COMMAND: failed"' ERR

PROJECT=$(mktemp -d "${TMP:-/tmp}/project.XXXXXX")
BIN=$(mktemp -d "${TMP:-/tmp}/bin.XXXXXX")
trap 'rm -rf "$PROJECT" "$BIN"' EXIT

# expect STATUS WORDS COMMAND...: the command ends so and prints a line with WORDS; its output is
# then in SAID.
expect() {
    local wanted=$1 words=$2 status=0
    shift 2
    SAID=$("$@" 2>&1) || status=$?
    if ((status != wanted)) || ! grep -q -- "$words" <<< "$SAID"; then
        printf '%s: status %d, not %d, or no line with "%s":\n%s\n' \
            "$*" "$status" "$wanted" "$words" "$SAID"
        exit 1
    fi
    printf 'status %d, "%s": %s\n' "$status" "$words" "$*"
}

# must_say WORDS: the last command has printed a line with them, too.
must_say() {
    grep -q -- "$1" <<< "$SAID" || { printf 'no line with "%s":\n%s\n' "$1" "$SAID"; exit 1; }
}

# stub NAME LINE...: a command that comes before that of the machine.
stub() {
    printf '%s\n' '#!/bin/bash' "${@:2}" > "$BIN/$1"
    chmod +x "$BIN/$1"
}

# ---- A project in which all is missing but a compiler --------------------------------------------

mkdir "$PROJECT"/{tests,tools}
cp make.sh test.sh aco*.[chS] test_aco_*.c "$PROJECT"
cp tools/{dependencies*,warnings} "$PROJECT/tools"
cp tests/{arguments,fails_on_purpose.sh,harness.{c,h,sh},skips,test_status.c} "$PROJECT/tests"
cd "$PROJECT"
sed -i '/ fetch_/d; /^#/!{/| all$/!s/^[^|]*|/false |/}' tools/dependencies
export CFLAGS=-O0

expect 0 '^make.sh: left out.*./make.sh -i all' bash make.sh
must_say '^  programs for i386  *gcc-multilib$'
must_say '^  programs under memcheck  *valgrind$'
must_say '^  programs for other processors  *clang$'
[[ -x output/test_aco_synopsis..no_valgrind.shareFPUenv && $(echo output/*m32*) == *'*'* ]]

# A test that passes and reports something untested, one whose two parts skip themselves, the only C
# test, without which the rest is done, and tests that users need not run: a part, and a script.
printf '# seconds: 200\n# user\necho "clang: not found, not tested"\n' > tests/test_most.sh
printf '# parts: one two\n# user: one two\n%s\n' \
    'echo "skipped: no gdb (or ./test.sh -i all)"; exit 77' > tests/test_none.sh
# shellcheck disable=SC2016 # the script is to expand it
printf '# parts: one two more\n# seconds: 1 1 100\n# user: one two\necho "$1" >> parts\n' \
    > tests/test_parts.sh
mkdir tools/new
printf 'echo no >> parts\n' > tools/new/test_rest.sh
expect 0 '^21 passed, 0 failed, 2 skipped$' bash test.sh
must_say '^test.sh: 23 tests, about [0-9]* minutes on '
must_say '^by folder:$'
must_say '^ .* tests (5)$'
must_say '^ .* all (23)$'
must_say '^  C tests  *libcmocka-dev$'
must_say '^  clang: not found, not tested$'
must_say '^  no gdb (skipped: 2)$'
[[ $(sort parts) == $'one\ntwo' ]]
expect 0 '^23 passed, 0 failed, 2 skipped$' bash test.sh all
must_say '^passed .* tools/new/test_rest.sh '
must_say '^ .* tools/new (1)$'
[[ $(sort parts) == $'more\nno\none\none\ntwo\ntwo' ]]

# ---- Compilers -----------------------------------------------------------------------------------

expect 1 '^make.sh: there is no compiler nosuchcc, which CC names' env CC=nosuchcc bash make.sh
expect 1 '^make.sh: there is no compiler nosuchcc, which CC names' \
    env CC='nosuchcc -O1' bash test.sh
expect 1 '^make.sh: there is no compiler nosuchcxx, which CXX names' env CXX=nosuchcxx bash make.sh
# shellcheck disable=SC2016 # the script is to expand it
echo 'exec "$CC" -dumpversion' > tests/test_one_word.sh
expect 0 '^1 passed, 0 failed, 0 skipped$' env CC="$CC -O1" bash test.sh one_word
rm tests/test_one_word.sh

# ---- Order and choice ----------------------------------------------------------------------------

stub nproc 'echo 1'
expect 0 'about 5 minutes on 1 processor$' env PATH="$BIN:$PATH" \
    bash test.sh tutorial_ test_most parts.sh
[[ $(grep -m 1 '^passed' <<< "$SAID") == *@(test_most.sh|test_parts.sh more)* ]]
must_say '^18 passed, 0 failed, 0 skipped$'

# The C tests alone, where there is cmocka.
cmocka=0
if echo 'int main(void) { return 0; }' | "$CC" -x c - -lcmocka -o "$BIN/program"; then
    sed -i '/| native-tests$/s/^false/true/' tools/dependencies
    cmocka=1
    expect 0 '^4 passed, 0 failed, 0 skipped$' bash test.sh quick

    # Arguments, by a table; a second line about a program is a second run of it.
    printf 'test_status | no-such-test | no-such-test\ntest_status | | \n' > tests/arguments
    expect 0 'test_status..no_valgrind.shareFPUenv no-such-test ' bash test.sh quick
    must_say '^8 passed, 0 failed, 0 skipped$'

    # Tests that skip themselves, with a reason and without; and memory that malloc() has filled.
    cat > tests/test_new.c << 'END'
#include "tests/harness.h"
#include <stdlib.h>

static void is_listed(void **state)
{
    (void)state;
    skip();
}

static void is_not(void **state)
{
    (void)state;
    if (STRESS) {
        skip();
    }
}

static void memory_is_filled(void **state)
{
    char *memory = (char *)malloc(1000);
    (void)state;
    ESCAPE(memory);
#ifdef __GLIBC__
    assert_int_not_equal(memory[500], 0);
#endif
    free(memory);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_listed),
        cmocka_unit_test(is_not),
        cmocka_unit_test(memory_is_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
END
    printf '%s\n' 'no_such_build test_new..no | reason' '    is_listed' 'no_such_build | other' \
        '    is_listed' '    is_not' 'any | it never does' '    memory_is_filled' > tests/skips
    expect 0 '^4 passed, 0 failed, 0 skipped$' bash test.sh test_new
    must_say '^6 times a test of a program skipped itself:$'
    must_say '^ *4 is_listed: reason$'
    must_say '^ *2 is_not: NO REASON in tests/skips$'
    cp tools/dependencies "$BIN/kept"
    sed -i 's/^[^#|]*|/true |/' tools/dependencies # all is there
    AFTER_ALL=(bash test.sh -i -o no-m32 -o no-valgrind -o no-qemu -o no-musl all test_new)
    expect 1 '^2 passed, 2 failed, 0 skipped$' "${AFTER_ALL[@]}"
    must_say '^FAILED .*test_new..no_valgrind.shareFPUenv.stress .* skips tests$'
    must_say '^passed .*test_new..no_valgrind.standaloneFPUenv '
    printf '%s\n' 'stress | another' '    is_not' >> tests/skips
    expect 0 '^4 passed, 0 failed, 0 skipped$' "${AFTER_ALL[@]}"
    must_say '^ *2 is_not: another$'
    mv "$BIN/kept" tools/dependencies
    rm tests/test_new.c
fi
printf '%s\n' '. tests/harness.sh' '((MALLOC_PERTURB_)) && echo filled' \
    'must "no program" printf "[  SKIPPED ] is_listed\n"' > tests/test_filled.sh
expect 0 '^filled$' env -u MALLOC_PERTURB_ bash tests/test_filled.sh
must_say '^\[  SKIPPED \] is_listed$'
rm tests/test_filled.sh

# ---- Failures ------------------------------------------------------------------------------------

expect 1 '^0 passed, 1 failed, 0 skipped$' bash test.sh fails_on_purpose
must_say '^this test fails on purpose$'
export PASSES=$PROJECT/passes
seq 2 > "$PASSES"
expect 1 '^0 passed, 1 failed, 0 skipped$' bash test.sh loop fails_on_purpose
[[ ! -s $PASSES ]] || { printf 'test.sh loop does not go on until a test fails\n'; exit 1; }
expect 1 'no test was executed' bash test.sh -o no-valgrind test_none
expect 2 '^test.sh: no test has no_such_test in its name' bash test.sh test_parts no_such_test
[[ $SAID != *built* ]] || { printf 'test.sh builds before it knows the names\n'; exit 1; }

# must_end WORDS: the last command has printed one line and no usage.
must_end() {
    [[ $SAID == "$1" ]] || { printf 'not just "%s":\n%s\n' "$1" "$SAID"; exit 1; }
}
for script in make test; do
    expect 2 "unknown" bash "$script.sh" -o no-such-thing
    must_end "$script.sh: unknown option -o no-such-thing (see ./$script.sh -h)"
    expect 2 "unknown" bash "$script.sh" -x
    must_end "$script.sh: unknown option -x (see ./$script.sh -h)"
done
expect 2 'unknown' bash make.sh no-such-goal
must_end 'make.sh: unknown argument no-such-goal (see ./make.sh -h)'
expect 0 'usage: ./test.sh' bash test.sh -h
expect 0 'usage: ./make.sh' bash make.sh -h
expect 1 'header and library are' bash test.sh version_check=0.0.1
expect 0 '^1 passed, 0 failed, 0 skipped$' bash test.sh \
    "version_check=$(awk '/^#define ACO_VERSION_(MAJOR|MINOR|PATCH) / { v = v dot $3; dot = "." }
                          END { print v }' aco.h)"

# ---- Elsewhere -----------------------------------------------------------------------------------

# as_reader COMMAND...: runs it without the rights of root, which may write everywhere.
as_reader() {
    ((EUID != 0)) || set -- setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
    "$@"
}

# $TMP may be readable for root alone.
SHELF=$(TMPDIR=/tmp mktemp -d)
trap 'chmod -R u+w "$SHELF" && rm -rf "$PROJECT" "$BIN" "$SHELF"' EXIT
rm -rf output
cp -R . "$SHELF/aco"
mkdir "$SHELF/out"
chmod -R a+rX,a-w "$SHELF/aco"
chmod 777 "$SHELF"/{,out}
cd /
export TMPDIR=/tmp CC=${CC##*/} CXX=${CXX##*/}
unset PASSES TMP
expect 1 "^make.sh: can't write to output/: OUTPUT=" as_reader bash "$SHELF/aco/make.sh"
expect 0 '^make.sh: [0-9]* targets built in .*/out/' \
    as_reader env -C "$SHELF" OUTPUT=out bash aco/make.sh library
[[ -e $SHELF/out/libaco.so && ! -e $SHELF/aco/output ]]
expect 0 '^14 passed, 0 failed, 0 skipped$' \
    as_reader env OUTPUT="$SHELF/out" bash "$SHELF/aco/test.sh" tutorial_
if ((cmocka)); then
    expect 0 '^8 passed, 0 failed, 0 skipped$' \
        as_reader env OUTPUT="$SHELF/out" bash "$SHELF/aco/test.sh" quick
fi
