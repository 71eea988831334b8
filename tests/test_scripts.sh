#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# All scripts are of one dialect, bash, and shellcheck finds no fault in them. It finds faults that
# are put in.
#
# seconds: 15

# shellcheck source=tests/harness.sh
. tests/harness.sh

need shellcheck:shellcheck
CHECK=(shellcheck -x -o require-double-brackets)
mapfile -t SCRIPTS < <(find . -name '*.sh' ! -path './output/*')
[[ ! -f .ci/run ]] || SCRIPTS+=(.ci/run)

for script in "${SCRIPTS[@]}"; do
    read -r first <"$script"
    [[ $first == '#!/usr/bin/env bash' || $first == '# shellcheck shell=bash'* ]] ||
        fail "$script does not say that it is for bash"
done
printf '%s\n' "${SCRIPTS[@]}" >"$TMP/list"
must "shellcheck finds faults" xargs -a "$TMP/list" -P "$(nproc)" -n 8 "${CHECK[@]}"

# shellcheck disable=SC2016 # the faults are not to expand
for fault in '[ -n "$1" ]' 'echo $1' 'unused=1'; do
    printf '#!/usr/bin/env bash\n%s\n' "$fault" >"$TMP/fault.sh"
    must_not "shellcheck lets pass: $fault" 'SC[0-9]+' "${CHECK[@]}" "$TMP/fault.sh"
done
echo "${#SCRIPTS[@]} scripts"
