#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tables, charts and quotations come from the results of all machines alone; results are of the aco
# that is here, or say why they stand; machines stand side by side; charts show the values of the
# results, in the light and in the dark.

# shellcheck source=tests/harness.sh
. tests/harness.sh

PYTHON=/usr/bin/python3
[[ -d bench && -d img && -d docs && -d extra ]] || skip "bench/, img/, docs/ or extra/ is missing"
need "$PYTHON":python3
export PYTHONDONTWRITEBYTECODE=1

PROJECT=$TMP/project
mkdir -p "$PROJECT/img"
cp -r --parents bench docs README.md README_zh.md aco.h aco.c acosw.S extra/stack_pool "$PROJECT"
cp img/canvas.py "$PROJECT/img"
draw() {
    "$PROJECT/bench/run.sh" --draw
}
inside() {
    PYTHONPATH=$PROJECT/img:$PROJECT/bench "$PYTHON" "$@"
}

# ---- Committed files -----------------------------------------------------------------------------

must "results can't be drawn" draw
for path in README.md README_zh.md docs bench/results img/bench; do
    must "$path is not what bench/results/*.csv make: run bench/run.sh --draw" \
        diff -r "$path" "$PROJECT/$path"
done
! grep -rn -e '-->unmeasured<!--' README.md README_zh.md docs || fail "a figure was not measured"
echo "tables, charts and quotations are those of the results"

# ---- The aco that was measured -------------------------------------------------------------------

# are_current: tells whether the results are of the aco in the copy, or say why they stand
are_current() {
    inside -c '
import model
import plan
for results in model.read_all(plan.GROUPS["core"].results):
    if not results.is_current():
        raise SystemExit(f"aco.h, aco.c, acosw.S or extra/stack_pool has changed since the run in "
                         f"bench/results/{results.name}.csv. Measure again by bench/run.sh; or say "
                         f"why its figures stand, by a line at its top, then bench/run.sh --draw:\n"
                         f"# {model.NOTE} {model.sources()}: WHY")'
}
must "results are not of this aco" are_current
printf '/* a comment, */ // and another\n' >>"$PROJECT/aco.h"
must "a comment makes results stale" are_current
for source in aco.h aco.c acosw.S extra/stack_pool/aco_stack_pool.c; do
    printf '.globl other\n' >>"$PROJECT/$source"
    must_not "$source may change after a run" "extra/stack_pool has changed since" are_current
    note=$(tail -n 1 "$TMP/said")
    sed -i "1i ${note%WHY}no instruction has changed" "$PROJECT"/bench/results/*.csv
    must "a note that says why results stand counts for nothing" are_current
done
must "results with notes can't be drawn" draw
[[ $(<"$PROJECT/bench/results/tables.md") == *"Changed since: no instruction has changed;"* ]] ||
    fail "a note is not quoted"
echo "results are of this aco"

# ---- Two machines --------------------------------------------------------------------------------

cat >"$TMP/second.py" <<'END'
"""Results of a second machine: aco takes four times as long, and all others twice."""
import sys
from pathlib import Path

import model

first = model.read_all(Path(sys.argv[1]))[0]
first.name = "second-machine"
first.machine["machine"] = "Second Machine, 4 cores, 8 GiB, Linux 6"
for (title, _), cell in first.cells.items():
    for value in cell.values.values():
        factor = 4 if model.is_aco(title) else 2
        value.rounds = [float(f"{factor * spread * one:.6g}")
                        for one in value.rounds for spread in (1, 1.5, 0.75)]
model.write_csv(first, Path(sys.argv[1], "second-machine.csv"))
again = model.read_csv(Path(sys.argv[1], "second-machine.csv"))
assert again == first, "a CSV is not read as it was written"
END
first=$(basename "$(find bench/results -name '*.csv' | LC_ALL=C sort | head -n 1)" .csv)
find "$PROJECT/bench/results" -name '*.csv' ! -name "$first.csv" -delete
must "there is no second machine" inside "$TMP/second.py" "$PROJECT/bench/results"
cat >"$TMP/some.md" <<'END'
<!-- bench headline -->
stale
<!-- /bench -->
<!-- bench machine -->
stale
<!-- /bench -->
<!-- ratio switch ns: aco pool / C++20 -->stale<!-- /ratio --> times, and
<!-- ratio switch ns: glibc ucontext / C++20 -->stale<!-- /ratio --> times, in
<!-- value switch ns: C++20 -->stale<!-- /value --> ns, and
<!-- value suspended bytes: aco share stack -->stale<!-- /value --> bytes
END
cp "$TMP/some.md" "$PROJECT/docs/some.md"
cp "$TMP/some.md" "$PROJECT/README_zh.md"
must "results of two machines can't be drawn" draw
for document in docs/some.md README_zh.md; do
    text=$(<"$PROJECT/$document")
    [[ $text != *stale* ]] || fail "$document is not quoted to"
    [[ $text == *"**$first**"*"| aco pool, "*"**second-machine**"*"| aco pool, "* ]] ||
        fail "the headline table of $document does not have both machines"
    [[ $text == *"- **$first**"*"- **second-machine**"*"Second Machine, 4 "* ]] ||
        fail "$document does not tell what the machines are"
    to=$([[ $document == *_zh.md ]] && echo ～ || echo ' to ')
    [[ $text =~ /\ C\+\+20\ --\>[0-9.]+"$to"[0-9.]+\<.*/\ C\+\+20\ --\>[0-9.]+\< ]] ||
        fail "ratios in $document are not those of both machines"
    [[ $text =~ ns:\ C\+\+20\ --\>([0-9.]+)"$to"([0-9.]+)\<.*stack\ --\>192"$to"768\< ]] ||
        fail "values in $document are not those of both machines"
done
for line in '## Resume and yield' '**second-machine**' '| libcopp v2 | 60.0 | '; do
    [[ $(<"$PROJECT/bench/results/tables.md") == *"$line"* ]] ||
        fail "tables.md does not have $line"
done
echo "two machines stand side by side"

# ---- Rounds --------------------------------------------------------------------------------------

mkdir "$TMP/rounds"
cat >"$TMP/rounds/some-rounds.csv" <<'END'
workload,arguments,peer,kind,metric,status,rounds
switch,switch 1,aco pool,stackful,ns,ok,2 9 4 3 3 4 2 1
switch,switch 1,"aco pool, own control words",stackful,ns,ok,1 1 1 1 1 1 1 1
switch,switch 1,tied,stackful,ns,ok,4 4 5 5 5 5 6
switch,switch 1,slower,stackful,ns,ok,5 5 5 5 5 5 5 5
switch,switch 1,stackless,stackless,ns,ok,1 3 2 1 1 2 1 1
END
must "tables are not made of rounds" inside -c '
import sys
from pathlib import Path
import model, report, tables
machines = model.read_all(Path(sys.argv[1]))
print(tables.table(machines[0], model.SWITCH[:1]))
for pair in (("aco pool", "stackless"), ("slower", "tied"), ("stackless", "slower")):
    print("ratio", report.ratio_text(machines, "switch", "ns", *pair))
for rounds in [1] * 4, [0.5, 2] * 8, [0.9, 1.1, 1.3, 1.5] * 2, [1.1, 1.2, 1.3, 1.4] * 2:
    print("interval", tables.with_interval(model.Value(rounds)))' "$TMP/rounds"
for line in '| aco pool, shared control words | **3.00** (1.00–9.00) |' \
    '| aco pool, own control words (default) | 1.00 |' '| tied | **5.00** (4.00–6.00) |' \
    '| slower | 5.00 |' '| stackless | 1.00 (1.00–3.00) |' \
    'ratio 2.0' 'ratio 1.00' 'ratio 0.20' 'interval 1.00' 'interval 1.25 (0.50–2.00)' \
    'interval 1.20 (0.90–1.50)' 'interval **1.25** (1.10–1.40)'; do
    grep -qxF "$line" "$TMP/said" || fail "of rounds, there is no line $line"
done
echo "tables and ratios are made of rounds"

# ---- Charts --------------------------------------------------------------------------------------

must "charts are not of their results" inside bench/check_charts.py bench/results img/bench
must "charts of two machines are not of their results" \
    inside bench/check_charts.py "$PROJECT/bench/results" "$PROJECT/img/bench"

# alike WHAT MESSAGE SCRIPT: sed makes two series of count.svg alike, which is seen.
alike() {
    cp -r "$PROJECT/img/bench" "$TMP/alike"
    sed -i "$3" "$TMP/alike/count.svg"
    must_not "$1 of two series may be the same" "count.svg: $2 look the same" \
        inside bench/check_charts.py "$PROJECT/bench/results" "$TMP/alike"
    rm -r "$TMP/alike"
}
alike "marks" "\['.*', '.*'\]" 's/"head-guard"/"head-main"/'
alike "lines" "two curves" 's/ stroke-dasharray="[^"]*"//'

# Few rows: those of three peers alone.
mkdir "$TMP/few"
grep -E '^#|^workload|,(aco pool|C\+\+20|aco share stack),' "bench/results/$first.csv" \
    >"$TMP/few/few-peers.csv"
must "few rows can't be drawn" inside -c '
import sys
from pathlib import Path
import plan, report
report.write_all(plan.GROUPS["core"], Path(sys.argv[1]), Path(sys.argv[1]))' "$TMP/few"
must "charts of few rows are not of their results" \
    inside bench/check_charts.py "$TMP/few" "$TMP/few"
echo "charts are those of the results"

# ---- Refusals ------------------------------------------------------------------------------------

sed -i 's/bench headline/bench nonsense/' "$PROJECT/docs/some.md"
must_not "a table that there is not passes" "some.md: there is no table nonsense" draw
must_not "a machine may have any name" "lower-case letters, digits and hyphens: 'A/b'" \
    bench/run.sh --check --machine A/b
rm "$PROJECT"/bench/results/*.csv
must_not "nothing is drawn of no results" "nothing has been measured yet" draw
must "machines are not named by their processors" inside -c '
from machine import name_machine
for name, vendor, family, model, called in (
        ("amd-epyc-zen3", "AuthenticAMD", "25", "1", "AMD EPYC"),
        ("amd-epyc-zen4", "AuthenticAMD", "25", "17", "AMD EPYC"),
        ("amd-epyc-zen5", "AuthenticAMD", "26", "2", "AMD EPYC"),
        ("intel-xeon-emeraldrapids", "GenuineIntel", "6", "207", "Intel(R) Xeon(R) Processor"),
        ("amd-ryzen-9-5950x-zen3", "AuthenticAMD", "25", "33",
         "AMD Ryzen 9 5950X 16-Core Processor"),
        ("some-cpu-family-6-model-1", "GenuineIntel", "6", "1", "Some CPU @ 2.70GHz"),
        ("neoverse-n1", "ARM", "", "1", "Neoverse-N1")):
    cpu = {"Vendor ID": vendor, "CPU family": family, "Model": model, "Model name": called}
    found = name_machine({key: value for key, value in cpu.items() if value})
    assert found == name.replace("-cpu", ""), found'
echo "names are checked"
