#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The documents are true: every program in them compiles and prints the text that follows it, every
# command runs, in blocks and in sentences, every link leads somewhere, the README is short and
# begins with the runtime, and the two READMEs say the same.
#
# seconds: 61
# shellcheck source=tests/harness.sh
source "$(dirname "${BASH_SOURCE[0]}")/harness.sh"
need_libraries
shopt -s nullglob
[[ -d docs ]] || skip "there is no docs/"
need python3:python3 pkg-config:pkg-config make:make

mapfile -t DOCUMENTS < <(find . -name '*.md' ! -path './output/*' | LC_ALL=C sort)

# The system's Python: Debian's packages are for it.
PYTHON=/usr/bin/python3

# Commands that another test runs, since they take long or need what it has, each with that test.
# .ci/run runs those that install packages.
readonly INSTALLED=packaging/test_install.sh
declare -A RUN_BY=(
    ["./make.sh -i run"]=.ci/run
    ["./make.sh -i"]=.ci/run
    ["./make.sh"]=tests/test_runner.sh
    ["./make.sh library"]=tests/test_runner.sh
    ["./test.sh"]=tests/test_runner.sh
    ["./test.sh -i"]=tests/test_runner.sh
    ["./test.sh -i all"]=.ci/run
    ["./test.sh NAME"]=tests/test_runner.sh
    ["./test.sh quick"]=tests/test_runner.sh
    ["bench/run.sh"]=bench/test_bench.sh
    ["bench/run.sh -i"]=bench/test_bench.sh
    ["bench/run.sh --check --only FILE"]=bench/test_bench.sh
    ["bench/run.sh --group runtime"]=bench/test_servers.sh
    ["bench/run.sh --group hooks"]=bench/test_servers.sh
    ["bench/run.sh --group pthreads"]=bench/test_servers.sh
    ["bench/run.sh --group cpp"]=bench/test_servers.sh
    ["img/draw.py"]=tests/test_pictures.sh
    ["test_proof.sh --all-mutants"]=tools/proof/test_proof.sh
    ["tests/mutants/run.py --part hooks -n 200 -s 7 -j 2"]=tests/mutants/test_mutants.sh
    ["man 7 aco"]=$INSTALLED
    ["gcc -O2 program.c \$(pkg-config --cflags --libs aco-hooks libpq) -o program"]=$INSTALLED
    ["gcc -O2 program.c \$(pkg-config --libs aco-pthreads) -o program"]=$INSTALLED
    ["pthreads/aco-run --report python3 -m http.server 7001"]=pthreads/tests/test_pthreads.sh
    ["packaging/build_debian.sh"]=packaging/test_debian.sh
    ["apt install ./output/debian/*aco*.deb"]=packaging/test_debian.sh
    ["conan create packaging/conan"]=packaging/test_conan.sh
    ["vcpkg install aco --overlay-ports=packaging/vcpkg"]=packaging/test_vcpkg.sh
    ["vcpkg remove aco"]=packaging/test_vcpkg.sh
    ["gdb -x tools/gdb/aco.py ./program"]=tools/gdb/test_gdb.sh
    ["gdb -x tools/gdb/aco.py ./program core"]=tools/gdb/test_gdb.sh
    ["source tools/gdb/aco.py"]=tools/gdb/test_gdb.sh
    ["source PREFIX/share/aco/aco.py"]=$INSTALLED
    ["source /usr/local/share/aco/aco.py"]=$INSTALLED
)

# blocks FILE DIRECTORY: each code block of FILE as a file there, numbered, with its language as
# suffix.
blocks() {
    mkdir -p "$2"
    awk -v directory="$2" '
        /^```/ && !inside { inside = 1; name = sprintf("%s/%03d.%s", directory, ++n, substr($0, 4))
                            printf "" > name; next }
        /^```/ { inside = 0; close(name); next }
        inside { print > name }' "$1"
}

# parts FILE: its sentences, cut at each backtick: every second line is code.
parts() {
    awk '/^```/ { inside = !inside; next } !inside { printf "%s ", $0 } END { print "" }' "$1" |
        tr '`' '\n'
}

# commands_in FILE: what in its sentences is a command, for a shell or, behind "(gdb) ", for gdb: it
# begins, after assignments, with a program of the project, or with one of the machine and has more
# words. The name of a test is that of a file: ./test.sh runs it.
commands_in() {
    local text program arguments
    sed -n '/^(gdb) ./p' "$1"
    while IFS= read -r text; do
        [[ $text =~ ^([A-Z_]+=(\'[^\']*\'|[^ ]*) )*([^ ]+)( .*)?$ ]] || continue
        program=${BASH_REMATCH[3]} arguments=${BASH_REMATCH[4]}
        case $program in
        info | aco) [[ $text == "aco "[!abfw]* || -z $arguments ]] || echo "(gdb) $text" ;;
        output/*) ;;
        */test_*.sh) [[ -f $program ]] || echo "$text" ;;
        */*.sh) echo "$text" ;;
        */*) [[ ! -f $program || ! -x $program ]] || echo "$text" ;;
        *.sh | *.py | source | conan | vcpkg) [[ -z $arguments ]] || echo "$text" ;;
        *) [[ -z $arguments || -z $(type -P -- "$program") ]] || echo "$text" ;;
        esac
    done < <(parts "$1" | awk 'NR % 2 == 0')
}

# The file of the block that follows a program, which may have the text that the program prints.
expected_of() {
    printf '%s/%03d.text' "${1%/*}" "$((10#$(basename "${1%.*}") + 1))"
}

# Completes a program of docs/cpp.md, as that document says; others are complete.
complete() {
    if [[ $document == */cpp.md ]]; then
        printf '#include %s\n' '<utility>'
        grep -q boost "$1" || printf '#include %s\n' '"aco.hpp"'
        printf '#include <%s>\n' cstdio memory optional shared_mutex stdexcept string thread vector
        echo 'using namespace std::chrono_literals;'
        cat "$1"
        grep -q '^int main' "$1" || echo 'int main() { aco::run(first); }'
    else
        cat "$1"
    fi
}

# Programs of docs/hooks.md are linked with HOOKS, and run with a database that the test starts.
HOOKS=() DATABASE=() ADDRESS=

# find_database SOURCE: whether there is one, whose address the source then has.
find_database() {
    if [[ " $OPTIONS " == *" no-servers "* ]] || ! pkg-config --exists libpq ||
        ! compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; then
        echo "programs of $document: no PostgreSQL, not tested"
        return 1
    fi
    read -ra DATABASE < <(pkg-config --cflags --libs libpq)
    HOOKS=("-Wl,-u,aco_hooks_active" "$OUTPUT/libaco_hooks.a")
    if [[ -z ${SERVER:-} ]]; then
        local port=$PORT
        # shellcheck source=hooks/tests/real/servers.sh
        . hooks/tests/real/servers.sh
        start_server pg
        ADDRESS="host=127.0.0.1 port=$PORT user=aco dbname=postgres"
        PORT=$port
    fi
    sed -i "s/host=localhost user=me dbname=shop/$ADDRESS/" "$1"
}

try_program() {
    local source=$TMP/program.${1##*.} compiler=("$CC" -std=gnu99 -Wstrict-prototypes)
    complete "$1" | sed "s/localhost:7000/localhost:$PORT/" >"$source"
    if [[ $source == *.cpp ]]; then
        compiler=("$CXX" -std=c++17)
        ! grep -q co_await "$source" || compiler=("$CXX" -std=c++20)
    fi
    if [[ $document == */hooks.md ]]; then
        find_database "$source" || return 0
    fi
    must "a program of $document compiles" "${compiler[@]}" -O2 "${WARNINGS[@]}" -fexceptions -I. \
        -Iruntime -Icpp "${INCLUDES[@]}" "$source" "${HOOKS[@]}" "$OUTPUT/libaco_runtime.a" \
        "$OUTPUT/libaco.a" "${DATABASE[@]}" -lpthread -ldl -o "$TMP/program"
    if grep -q "localhost:$PORT" "$source"; then
        try_server
        return
    fi
    timeout 60 env -C "$TMP" "$TMP/program" >"$TMP/printed" ||
        fail "a program of $document: status $?"
    if [[ -f $(expected_of "$1") ]]; then
        diff "$(expected_of "$1")" "$TMP/printed" || fail "$document says otherwise"
    fi
}

# The program serves, at $PORT: it echoes what clients send at a time.
try_server() {
    local server
    timeout 60 "$TMP/program" &
    server=$!
    must "the server of $document doesn't echo" timeout 60 "$PYTHON" - "$PORT" <<'END'
import socket
import sys
import time


def connect() -> socket.socket:
    for _ in range(200):
        try:
            return socket.create_connection(("localhost", int(sys.argv[1])), 10)
        except ConnectionRefusedError:
            time.sleep(0.05)
    sys.exit("it doesn't listen")


clients = [connect() for _ in range(3)]
for text in (b"hello", b"world"):
    for client in clients:
        client.sendall(text)
    for client in reversed(clients):
        if client.recv(len(text), socket.MSG_WAITALL) != text:
            sys.exit("something else comes back")
END
    kill "$server"
    wait "$server" || true
}

# Whether gdb, for which the command is kept, or another test runs it; that must be there.
is_run_elsewhere() {
    local by=${RUN_BY["$1"]:-}
    if [[ $1 == "(gdb) "* ]]; then
        # Optional arguments are left out; the first of several alternatives is taken.
        sed -E 's/^\(gdb\) //; s/ \[.*\]//; s/(\|[A-Za-z]+)+//; s/\<N\>/2/; s/\<ADDRESS\>/co/' \
            <<<"$1" >>"$TMP/gdb_commands"
    elif [[ -n $by ]]; then
        [[ -f $by ]] || fail "$document: there is no $by to run $1"
        [[ $by != .ci/* ]] || grep -q -e "^${1// /.* }" "$by" ||
            fail "$document: $by does not run $1"
        TRIED["$1"]=1
    else
        return 1
    fi
}

# Has gdb run the commands that were kept for it, when coroutines have yielded four calls deep and a
# task waits.
try_gdb_commands() {
    local command arguments=()
    have gdb || { echo "commands of gdb: no gdb, not tested"; return; }
    cat >"$TMP/debuggee.c" <<'END'
#include "aco_runtime.h"
static aco_t *co;
static void stop_here(void)
{
}
static void *waits(void *arg)
{
    return aco_sleep(1000000000) == 0 ? arg : NULL;
}
static void descend(int depth)
{
    if (depth > 0) {
        descend(depth - 1);
    }
    aco_yield();
}
static void entry(void)
{
    descend(4);
    aco_exit();
}
int main(void)
{
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    for (int i = 0; i < 4; i++) {
        co = aco_create(main_co, aco_share_stack_new(0), 0, entry, NULL);
        aco_resume(co);
    }
    if (aco_loop_fd() >= 0 && aco_go(waits, NULL) == 0) {
        aco_run_once(0);
    }
    stop_here();
    return 0;
}
END
    use_library aco_runtime "$CC" -O0 -DACO_CONFIG_LIST
    must "the program for gdb does not compile" "$CC" -g -O0 -DACO_CONFIG_LIST "${INCLUDE[@]}" \
        "$TMP/debuggee.c" "${OBJECTS[@]}" -o "$TMP/debuggee" -lpthread
    while read -r command; do
        arguments+=(-ex "$command")
    done <"$TMP/gdb_commands"
    gdb -nx -batch -iex 'set debuginfod enabled off' -x tools/gdb/aco.py \
        -ex 'break stop_here' -ex run -ex up "${arguments[@]}" -ex 'echo all ran\n' \
        "$TMP/debuggee" >"$TMP/said" 2>&1 </dev/null || true
    if [[ $(<"$TMP/said") != *"Breakpoint 1, "* ]]; then
        echo "commands of gdb: it runs no programs here, not tested"
    elif ! grep -qx 'all ran' "$TMP/said" ||
        grep -E '^(Undefined|Ambiguous|No symbol|Python|Error|aco: [^w])' "$TMP/said" >&2; then
        # A command that is named without an argument asks "aco: which one?".
        fail "gdb does not run all commands of documents: $(<"$TMP/gdb_commands")"
    else
        echo "gdb runs $(wc -l <"$TMP/gdb_commands") commands"
    fi
}

# try_commands FILE [ASSIGNMENT...]: runs the commands, those of a block or one of a sentence, in a
# copy of the tree, in which server.c is the server of the README, and your_program.c and program.c
# are its coroutine; those of a project to copy, in its folder.
try_commands() {
    local line command tests script=$TMP/script directory=$TMP/tree
    [[ ! -f ${document%/*}/Makefile ]] || directory+=/${document%/*}
    : >"$script"
    while IFS= read -r line; do
        command=${line%%  #*}
        command=${command%"${command##*[! ]}"}
        if is_run_elsewhere "$command"; then
            continue
        elif [[ $command == './test.sh '[!-]* ]]; then
            tests=({tests,tests/*,extra/*/tests,tools/*}/*"${command#./test.sh }"*.{sh,c})
            ((${#tests[@]})) || fail "$document: no test has ${command#./test.sh } in its name"
        elif [[ $command == *prove.py* ]] && ! "$PYTHON" -c 'import z3, capstone, elftools'; then
            echo "not tried: $command"
        else
            echo "$command" >>"$script"
        fi
    done <"$1"
    must "the commands of $document run: $(cat "$script")" env -C "$directory" ACO="$TMP/tree" \
        PATH="${PYTHON%/*}:$PATH" "${@:2}" bash -euo pipefail "$script" </dev/null
}

# The headings of a file, as links name them.
anchors() {
    sed -n 's/^##* //p' "$1" | tr '[:upper:] ' '[:lower:]-' | tr -d '.,:`()?+'
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
    done < <(sed '/^```/,/^```/d; s/`[^`]*`//g' "$document" | grep -oE '\]\([^)]+\)' |
        sed 's/^](//; s/)$//' | grep -vE '^[a-z]+:' || true)
}

# shape FILE TRANSLATION: what FILE has in common with its translation. That is its code, without
# the comments of commands, and of each heading, paragraph, item and row, in order, its kind and all
# that is not words: code, links, pictures, comments, bold type and figures. These are sorted,
# because the order of words depends on the language.
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
        /^```/ { finish(); inside = !inside; is_commands = /sh$/ }
        inside && is_commands { sub(/ +# .*/, "") }
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
synopses=("$TMP"/readme/*.c)
cp "${synopses[0]}" "$TMP/tree/server.c"
cp "${synopses[1]}" "$TMP/tree/your_program.c"
cp "${synopses[1]}" "$TMP/tree/program.c"
printf '#include "aco.hpp"\nint main() { return aco::run([] { return 0; }); }\n' \
    >"$TMP/tree/program.cc"

PORT=$("$PYTHON" -c 'import socket; print(socket.create_server(("", 0)).getsockname()[1])')

programs=0
commands=0
# Where the commands of sentences install, and find what those of a block have installed.
ELSEWHERE=(DESTDIR="$TMP/elsewhere" PKG_CONFIG_PATH="$TMP/tree/output/installed/lib/pkgconfig")

declare -A TRIED
for document in "${DOCUMENTS[@]}"; do
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
    (($(parts "$document" | wc -l) % 2)) || fail "$document: a backtick without another one"
    while IFS= read -r command; do
        [[ -z ${TRIED["$command"]:-} ]] || continue
        TRIED["$command"]=1
        sed 's/\<PROGRAM\>/your_program/; s/\<OFFSET\>/0/' <<<"$command" >"$TMP/command"
        try_commands "$TMP/command" "${ELSEWHERE[@]}"
        echo "$document: $command"
        commands=$((commands + 1))
    done < <(commands_in "$document")
    broken=$(broken_links)
    [[ -z $broken ]] || fail "$document: broken links: $broken"
done
((programs > 0 && commands > 0)) || fail "no program or no command was found"

# unknown_names FILE: names of ours in it that no header has.
unknown_names() {
    local name
    while IFS= read -r name; do
        grep -rqw --include='*.h' --include='*.hpp' -e "${name#aco::}" \
            aco.h extra runtime cpp hooks compat ||
            echo "$name"
    done < <(grep -oE '\b(aco_|aco::)[a-z0-9_]*[a-z0-9]\b' "$1" | LC_ALL=C sort -u)
}

for document in docs/coming_from.md docs/cpp.md; do
    unknown=$(unknown_names "$document")
    [[ -z $unknown ]] || fail "$document: names that no header has: $unknown"
done

try_gdb_commands
for command in "${!RUN_BY[@]}"; do
    [[ -n ${TRIED["$command"]:-} ]] || fail "no document has the command $command of RUN_BY"
done

# A newcomer reads the README in minutes: what aco is, with the runtime, fits on the first screen.
check_length() {
    local lines figures
    lines=$(wc -l <README.md)
    figures=$(grep -cE '<!-- (ratio|value) ' README.md)
    ((lines <= 175)) || fail "README.md has $lines lines: 175 are enough, the rest belongs in docs/"
    ((figures <= 6)) || fail "README.md has $figures measured figures: 6 are enough"
    [[ $(head -n 30 README.md) == *'*runtime*'*'"aco_runtime.h"'*'aco_read('* ]] ||
        fail "the first 30 lines of README.md don't show the runtime"
}
check_length
shape README.md README_zh.md >"$TMP/english"
shape README_zh.md README.md >"$TMP/chinese"
diff -u "$TMP/english" "$TMP/chinese" || fail "the READMEs say different things"
echo "$programs programs and $commands commands or blocks of them do as they say"
