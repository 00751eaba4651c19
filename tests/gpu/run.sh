#!/usr/bin/env bash
# Everything that needs a real GPU, in parts of at most ten minutes, with a short table at the end.
# usage: tests/gpu/run.sh OUT_FOLDER [base|findings|flows|all]
# python3 must have torch and the cockpit's dependencies.
set -u
cd "$(dirname "$0")/../.." || exit 1
out=$1 part=${2:-all}
export GPU_TEST_OUT=$out PYTHONPATH=$PWD:${PYTHONPATH:-}
python3 -m compileall -q cockpit
nvidia-smi -L

tests() { python3 -m pytest "$@" -s -q -p no:cacheprovider -o addopts= 2>&1 | grep -v Warning | tail -n 120; }

base() {
  tests tests/gpu/test_agrees_with_nvidia_smi.py tests/gpu/test_stray_in_the_tui.py \
    tests/gpu/test_runs.py tests/gpu/test_notebook.py
  echo "== one tick's cost on this machine"
  python3 tests/gpu/cost.py
  echo "== recording (a training, a stray, its kill)"
  python3 tests/gpu/record.py "$out/real.jsonl.gz"
  echo "== attach: 200 cycles"
  python3 tests/gpu/attach_check.py 200
  echo "== agent"
  python3 tests/gpu/agent_check.py
}
# Before the programs that fail: an Xid of theirs would be told of the healthy training, too.
findings() { tests tests/gpu/test_live_findings.py; }
flows() {
  tests tests/gpu/test_doctor.py tests/gpu/test_torch_check.py tests/gpu/test_diagnose.py \
    tests/gpu/test_relaunch.py tests/gpu/test_flows.py
}

case $part in
  base | findings | flows) "$part" ;;
  all) base && findings && flows ;;
  *) echo "unknown part: $part" >&2 && exit 2 ;;
esac
