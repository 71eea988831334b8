#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The mutation run kills the mutants of a small part by its tests, and lists those that they miss.
# seconds: 40
# shellcheck source=tests/harness.sh
source "$(dirname "${BASH_SOURCE[0]}")/../harness.sh"

/usr/bin/python3 -c 'import ensurepip' || lack "no python3-venv"

readonly RUN=(tests/mutants/run.py --part extra --only aco_value.h -n 4 -s 3 -j 2)
must "a mutant of extra/value survives" "${RUN[@]}"
grep -q "^4 killed" "$TMP/said" || fail "not killed: $(<"$TMP/said")"

mkdir "$TMP/tree"
tar -c --exclude=./output --exclude=./.git . | tar -x -C "$TMP/tree"
sed -i 's,^\(extra .*|\) .*,\1 extra/overflow/tests/test_overflow.c,' \
    "$TMP/tree/tests/mutants/fitting"
must_not "tests of another part kill all" "score of promised behaviour: 0.0 %" \
    env -u OUTPUT "$TMP/tree/${RUN[0]}" "${RUN[@]:1}"
echo "mutants are killed by the tests that fit, and survive others"
