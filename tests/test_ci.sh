#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every test is in some job of .github/workflows/ci.yml, and every name there selects a test that
# the job's options leave in. Relies on $OUTPUT/.tests, the list of all tests by test.sh.
# shellcheck source=tests/harness.sh
source "$(dirname "${BASH_SOURCE[0]}")/harness.sh"
/usr/bin/python3 -c 'import yaml' 2>/dev/null || lack "no PyYAML: apt-get install python3-yaml"
if [[ -n "$OPTIONS" ]] || [[ -s "$OUTPUT/.left_out" ]]; then
    skip "not all tests are built here"
fi

# find_faults WORKFLOW: a line about each.
find_faults() {
    /usr/bin/python3 - "$1" "$OUTPUT/.tests" <<'END'
import re
import sys

import yaml

workflow, tests = (open(path, encoding="utf-8").read() for path in sys.argv[1:])
job = yaml.safe_load(workflow)["jobs"]["test"]
left = set(tests.splitlines())
for entry in job["strategy"]["matrix"]["include"]:
    without = re.findall(r"-o no-(\w+)", entry.get("options", ""))
    variants = [word for word in without if word in ("m32", "valgrind")]
    if "qemu" in without:
        variants += ["arm64", "riscv64", "arm", "thumb"]
    there = [test for test in tests.splitlines()
             if not any(f".{variant}." in test for variant in variants)]
    for name in entry["tests"].split():
        selected = {test for test in there if name in test}
        left -= selected
        if not selected:
            print(f"{entry['name']}: {name} selects no test")
for test in sorted(left):
    print(f"{test}: in no job")
if job["steps"][-1]["run"] != "./test.sh -i ${{ matrix.options }} all ${{ matrix.tests }}":
    print("a job is not one ./test.sh")
END
}

WORKFLOW=.github/workflows/ci.yml
find_faults "$WORKFLOW" >"$TMP/faults"
[[ ! -s "$TMP/faults" ]] || fail "$WORKFLOW: $(head -n 20 "$TMP/faults")"
echo "each of $(wc -l <"$OUTPUT/.tests") tests is in some job"

# expect_fault COMMAND-OF-SED WORDS
expect_fault() {
    sed "$1" "$WORKFLOW" >"$TMP/ci.yml"
    find_faults "$TMP/ci.yml" >"$TMP/faults"
    grep -q -- "$2" "$TMP/faults" || fail "with $1, nothing says '$2'"
}
expect_fault 's/test_registers/test_registres/' 'test_registres selects no test'
expect_fault 's/test_registers//' 'test_registers.sh .*: in no job'
expect_fault 's/ \.\.thumb\.//' '\.\.thumb\..*: in no job'
expect_fault '/name: -m32/,/options:/s/options:/& -o no-m32/' '^-m32: .* selects no test'
expect_fault 's/matrix.tests }}/& || true/' 'a job is not one'
