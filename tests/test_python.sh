#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The project's Python follows the rules of .ruff.toml and is typed as .mypy.ini asks.
# shellcheck source=tests/harness.sh
source "$(dirname "${BASH_SOURCE[0]}")/harness.sh"

export PATH=$PWD/$OUTPUT/linters/bin:$PATH
have ruff || lack "no ruff in $OUTPUT/linters"
have mypy || lack "no mypy in $OUTPUT/linters"

# follows_rules FOLDER
follows_rules() {
    ruff check --no-cache --config .ruff.toml "$1"
}

# Scripts in one folder import each other by plain names.
types_agree() {
    local rules=$PWD/.mypy.ini
    (cd "$1" && mypy --config-file "$rules" --cache-dir "$TMP/cache" ./*.py)
}

mkdir "$TMP/faults"
printf '# SPDX-License-Identifier: Apache-2.0\nimport os\n' >"$TMP/faults/faults.py"
must_not "an import without use passes" F401 follows_rules "$TMP/faults"
printf 'WIDTH: int = "wide"\n' >"$TMP/faults/faults.py"
must_not "a wrong type passes" assignment types_agree "$TMP/faults"

mapfile -t folders < <(find . -name '*.py' ! -path './output/*' -printf '%h\n' | sort -u)
for folder in "${folders[@]}"; do
    must "$folder: not as .ruff.toml asks" follows_rules "$folder"
    must "$folder: not typed as .mypy.ini asks" types_agree "$folder"
    echo "$folder: follows the rules, and types agree"
done
