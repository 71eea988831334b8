#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tables, charts and quotations are what the results of all machines make, and nothing else; machines
# stand side by side; charts show the values of the results, in the light and in the dark.

# shellcheck source=tests/harness.sh
. tests/harness.sh

PYTHON=/usr/bin/python3
[[ -d bench && -d img && -d docs ]] || skip "bench/, img/ or docs/ is missing"
need "$PYTHON":python3
export PYTHONDONTWRITEBYTECODE=1

PROJECT=$TMP/project
mkdir -p "$PROJECT/img"
cp -r bench docs README.md README_zh.md "$PROJECT"
cp img/canvas.py "$PROJECT/img"
draw() {
    "$PROJECT/bench/run.sh" --draw
}

# ---- What is committed -----------------------------------------------------------------------------

must "results can't be drawn" draw
for path in README.md README_zh.md docs bench/results img/bench; do
    must "$path is not what bench/results/*.csv make: run bench/run.sh --draw" \
        diff -r "$path" "$PROJECT/$path"
done
! grep -rn -e '-->unmeasured<!--' README.md README_zh.md docs || fail "a ratio was not measured"
echo "tables, charts and quotations are those of the results"

# ---- Two machines ----------------------------------------------------------------------------------

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
        value.median, value.minimum = factor * value.median, factor * value.minimum
model.write_csv(first, Path(sys.argv[1], "second-machine.csv"))
again = model.read_csv(Path(sys.argv[1], "second-machine.csv"))
assert again == first, "a CSV is not read as it was written"
END
inside() {
    PYTHONPATH=$PROJECT/img:$PROJECT/bench "$PYTHON" "$@"
}
must "there is no second machine" inside "$TMP/second.py" "$PROJECT/bench/results"
first=$(basename "$(find bench/results -name '*.csv' | LC_ALL=C sort | head -n 1)" .csv)
cat >"$TMP/some.md" <<'END'
<!-- bench headline -->
stale
<!-- /bench -->
<!-- bench machine -->
stale
<!-- /bench -->
<!-- ratio switch ns: aco pool / C++20 -->stale<!-- /ratio --> times, and
<!-- ratio switch ns: glibc ucontext / C++20 -->stale<!-- /ratio --> times
END
cp "$TMP/some.md" "$PROJECT/docs/some.md"
cp "$TMP/some.md" "$PROJECT/README_zh.md"
must "results of two machines can't be drawn" draw
for document in docs/some.md README_zh.md; do
    text=$(<"$PROJECT/$document")
    [[ $text != *stale* ]] || fail "$document is not quoted to"
    [[ $text == *"**$first**"*"| aco pool | "*"**second-machine**"*"| aco pool | "* ]] ||
        fail "the headline table of $document does not have both machines"
    [[ $text == *"- **$first**"*"- **second-machine**"*"Second Machine, 4 "* ]] ||
        fail "$document does not tell what the machines are"
    [[ $text =~ C\+\+20\ --\>([0-9.]+)\ to\ ([0-9.]+)\<.*C\+\+20\ --\>[0-9.]+\< ]] ||
        fail "ratios in $document are not those of both machines"
done
[[ $(<"$PROJECT/README_zh.md") == *"对比项"*"测于提交"* ]] || fail "README_zh.md is not Chinese"
for line in '## Resume and yield' '**second-machine**' '| libcopp v2 | 60.0 | '; do
    [[ $(<"$PROJECT/bench/results/tables.md") == *"$line"* ]] || fail "tables.md does not have $line"
done
echo "two machines stand side by side"

# ---- Charts ----------------------------------------------------------------------------------------

must "charts are not of their results" inside bench/check_charts.py bench/results img/bench
must "charts of two machines are not of their results" \
    inside bench/check_charts.py "$PROJECT/bench/results" "$PROJECT/img/bench"

# Few rows: those of two peers only.
mkdir "$TMP/few"
grep -E '^#|^workload|,(aco pool|C\+\+20|aco share stack),' "bench/results/$first.csv" \
    >"$TMP/few/few-peers.csv"
must "few rows can't be drawn" inside -c '
import sys
from pathlib import Path
import report
report.write_all(Path(sys.argv[1]), Path(sys.argv[1]))' "$TMP/few"
must "charts of few rows are not of their results" inside bench/check_charts.py "$TMP/few" "$TMP/few"
echo "charts are those of the results"

# ---- What can't be -----------------------------------------------------------------------------------

sed -i 's/bench headline/bench nonsense/' "$PROJECT/docs/some.md"
must_not "a table that there is not passes" "some.md: there is no table nonsense" draw
must_not "a machine may have any name" "lower-case letters, digits and hyphens: 'A/b'" \
    bench/run.sh --check --machine A/b
rm "$PROJECT"/bench/results/*.csv
must_not "nothing is drawn of no results" "nothing has been measured yet" draw
must "machines are not named by their processors" inside -c '
from run import name_machine
for name, model, target in (
        ("amd-epyc-zen3", "AMD EPYC", "  -march=  \tznver3\n  -mtune=  znver3"),
        ("intel-xeon-sapphirerapids", "Intel(R) Xeon(R) Processor @ 2.70GHz",
         "  -march=  sapphirerapids"),
        ("amd-ryzen-9-5950x-zen3", "AMD Ryzen 9 5950X 16-Core Processor", "  -march=  znver3"),
        ("some-cpu", "Some CPU", "  -march=  x86-64"), ("neoverse", "Neoverse", "")):
    assert name_machine(model, target) == name.replace("-cpu", ""), name_machine(model, target)'
echo "names are checked"
