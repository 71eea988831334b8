#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the documents show is so: every program in them compiles and prints the text that follows it,
# every command runs, every link leads somewhere, and the two READMEs tell the same.
# shellcheck source=tests/harness.sh
source "$(dirname "${BASH_SOURCE[0]}")/harness.sh"
need_libraries
shopt -s nullglob
[[ -d docs ]] || skip "there is no docs/"

DOCUMENTS=(README*.md docs/*.md)

# That of the system, for which packages are.
PYTHON=/usr/bin/python3

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
    local line command tests script=$TMP/script
    : >"$script"
    while IFS= read -r line; do
        command=${line%%  #*}
        command=${command%"${command##*[! ]}"}
        if [[ $command == './test.sh '[!-]* ]]; then
            tests=({tests,tests/*,extra/*,tools/*}/*"${command#./test.sh }"*.{sh,c})
            ((${#tests[@]})) || fail "$document: no test has ${command#./test.sh } in its name"
        elif [[ $command == *prove.py* ]] && ! "$PYTHON" -c 'import z3, capstone, elftools'; then
            echo "not tried: $command"
        elif [[ -z ${RUN_BY["$command"]:-} ]]; then
            echo "$command" >>"$script"
        else
            grep -qF -e "$command" "${RUN_BY["$command"]}" ||
                fail "$document: ${RUN_BY["$command"]} does not run $command"
        fi
    done <"$1"
    (cd "$TMP/tree" && must "the commands of $document run: $(cat "$script")" \
        env PATH="${PYTHON%/*}:$PATH" bash -euo pipefail "$script")
}

# The headings of a file, as links name them.
anchors() {
    sed -n 's/^##* //p' "$1" | tr '[:upper:] ' '[:lower:]-' | tr -d '.,:`()?'
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
        elif [[ -n $anchor && -z $(anchors "$file" | sed -n "\\|^${anchor#\#}\$|p") ]]; then
            echo "$link"
        fi
    done < <(sed 's/`[^`]*`//g' "$document" | grep -oE '\]\([^)]+\)' |
        sed 's/^](//; s/)$//' | grep -vE '^[a-z]+:' || true)
}

# shape FILE TRANSLATION: what FILE has in common with its translation. That is its code, and of
# each heading, paragraph, item and row, in order, what it is and what in it is not words: code,
# links, pictures, comments, bold type and figures, sorted, since the order of words is a language's
# own.
shape() {
    sed -f <(echo "s|](${2//./\\.})|](the translation)|"
        anchors "$1" | awk '{ printf "s|](#%s)|](#%d)|g\n", $0, NR }') "$1" | awk '
        function say(what) { printf "%04d %s\n", unit, what }
        function take(pattern) {
            while (match(text, pattern)) {
                say(substr(text, RSTART, RLENGTH))
                text = substr(text, 1, RSTART - 1) " " substr(text, RSTART + RLENGTH)
            }
        }
        function finish() {
            if (text == "") return
            unit++
            match(text, /^(#+ |- |\|)?/)
            say(" " (RLENGTH > 0 ? substr(text, 1, RLENGTH) : "paragraph"))
            take("`[^`]*`"); take("<!-- [^>]* -->"); take("!\\["); take("\\]\\([^)]*\\)")
            take("\\|"); take("\\*\\*"); take("[0-9]+([.,][0-9]+)*")
            text = ""
        }
        /^```/ { finish(); inside = !inside }
        inside || /^```/ { unit++; say($0); next }
        /^(#|- |\||!\[|$)/ { finish() }
        { text = text (text == "" ? "" : " ") $0 }
        END { finish() }' | LC_ALL=C sort | cut -c 6-
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

shape README.md README_zh.md >"$TMP/english"
shape README_zh.md README.md >"$TMP/chinese"
diff -u "$TMP/english" "$TMP/chinese" || fail "the READMEs tell different things"
echo "$programs programs and $commands blocks of commands do as they say"
