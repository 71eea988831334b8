#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The example of README.md compiles by the command given there, with the files named there copied
# into an empty directory, and prints what is printed there.
set -euo pipefail

# block LANGUAGE: the first code block of that language.
block() {
    awk -v fence="\`\`\`$1" \
        '$0 == fence { inside = 1; next } inside && /^```/ { exit } inside' README.md
}

directory=$(mktemp -d "$TMP/readme.XXXXXX")
block c > "$directory/your_program.c"
block text > "$directory/expected"
command=$(grep -m 1 '^gcc ' README.md)
[[ -s $directory/your_program.c && -s $directory/expected && -n $command ]]
cp aco.h aco.c acosw.S aco_assert_override.h "$directory"

cd "$directory"
read -r -a words <<< "$command"
"${CC:-gcc}" "${words[@]:1}"
./your_program | diff expected -
echo "the example of README.md prints what it says: $command"
