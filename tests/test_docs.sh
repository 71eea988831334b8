#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the documents show is so: every program in them compiles and prints the text that follows it,
# every command runs, every link leads somewhere, and the two READMEs are of one shape.
# shellcheck source=tests/harness.sh
source "$(dirname "${BASH_SOURCE[0]}")/harness.sh"
need_libraries
[[ -d docs ]] || skip "there is no docs/"

DOCUMENTS=(README*.md docs/*.md)

# Commands that other scripts run, since they take long, and those scripts.
declare -A RUN_BY=(
    ["./make.sh -i run"]=.ci/run
    ["./test.sh -i"]=.ci/run
)

# blocks FILE DIRECTORY: each code block of FILE as a file there, numbered, with its language as suffix.
blocks() {
    mkdir -p "$2"
    awk -v directory="$2" '
        /^```/ && !inside { inside = 1; name = sprintf("%s/%03d.%s", directory, ++n, substr($0, 4))
                            printf "" > name; next }
        /^```/ { inside = 0; close(name); next }
        inside { print > name }' "$1"
}

# What the example that follows a program says it prints, if anything does.
expected_of() {
    printf '%s/%03d.text' "${1%/*}" "$((10#$(basename "${1%.*}") + 1))"
}

try_program() {
    local source=$1 compiler=("$CC" -std=gnu99 -Wstrict-prototypes)
    if [[ $source == *.cpp ]]; then
        compiler=("$CXX" -std=c++17)
    fi
    must "a program of $document compiles" "${compiler[@]}" -O2 "${WARNINGS[@]}" -fexceptions -I. \
        "${INCLUDES[@]}" "$source" "$OUTPUT/libaco.a" -lpthread -o "$TMP/program"
    "$TMP/program" >"$TMP/printed" || fail "a program of $document: status $?"
    if [[ -f $(expected_of "$source") ]]; then
        diff "$(expected_of "$source")" "$TMP/printed" || fail "$document says otherwise"
    fi
}

# Runs the commands of a block in a copy of the tree, in which your_program.c is the synopsis.
try_commands() {
    local line command script=$TMP/script
    : >"$script"
    while IFS= read -r line; do
        command=${line%%  #*}
        command=${command%"${command##*[! ]}"}
        if [[ -z ${RUN_BY["$command"]:-} ]]; then
            echo "$command" >>"$script"
        else
            grep -qF -e "$command" "${RUN_BY["$command"]}" ||
                fail "$document: ${RUN_BY["$command"]} does not run $command"
        fi
    done <"$1"
    (cd "$TMP/tree" && must "the commands of $document run: $(cat "$script")" \
        bash -euo pipefail "$script")
}

# Links to files that are not there, and to headings that are not there.
broken_links() {
    local link file anchor
    # shellcheck disable=SC2016 # the backticks are those of Markdown
    while IFS= read -r link; do
        file=${link%%#*}
        anchor=${link#"$file"}
        file=$([[ -z $file ]] && echo "$document" || echo "${document%/*}/$file")
        if [[ ! -e $file ]]; then
            echo "$link"
        elif [[ -n $anchor && -z $(sed -n 's/^##* //p' "$file" | tr '[:upper:] ' '[:lower:]-' |
            tr -d '.,:`()?' | sed -n "\\|^${anchor#\#}\$|p") ]]; then
            echo "$link"
        fi
    done < <(sed 's/`[^`]*`//g' "$document" | grep -oE '\]\([^)]+\)' |
        sed 's/^](//; s/)$//' | grep -vE '^[a-z]+:' || true)
}

shape() {
    awk '/^```/ { inside = !inside } inside { print } !inside && /^#/ { print $1 }' "$1"
}

INCLUDES=()
for directory in extra/*/; do
    INCLUDES+=("-I$directory")
done
mkdir "$TMP/tree"
tar -c --exclude=./output --exclude=./.git . | tar -x -C "$TMP/tree"
mkdir -p "$TMP/tree/output"
blocks README.md "$TMP/readme"
synopsis=("$TMP"/readme/*.c)
cp "${synopsis[0]}" "$TMP/tree/your_program.c"

programs=0
commands=0
for document in "${DOCUMENTS[@]/#/./}"; do
    directory=$TMP/blocks/$document
    blocks "$document" "$directory"
    for block in "$directory"/*; do
        case $block in
            *.c | *.cpp)
                try_program "$block"
                programs=$((programs + 1))
                ;;
            *.sh)
                try_commands "$block"
                commands=$((commands + 1))
                ;;
            *.) fail "$document: a code block without a language" ;;
        esac
    done
    broken=$(broken_links)
    [[ -z $broken ]] || fail "$document: broken links: $broken"
done
((programs > 0 && commands > 0)) || fail "no program or no command was found"

if [[ -f README_zh.md ]]; then
    diff <(shape README.md) <(shape README_zh.md) || fail "the READMEs differ in shape"
fi
echo "$programs programs and $commands blocks of commands do as they say"
