#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures aco beside its peers and draws it; `bench/run.sh -h` tells how. The work is done by
# run.py, by the system's Python, which is the one that Debian's packages are for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=img # canvas.py, with which charts are drawn
exec /usr/bin/python3 bench/run.py "$@"
