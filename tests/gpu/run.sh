#!/usr/bin/env bash
# Everything that needs a real GPU, in one go, with a short table at the end.
# usage: tests/gpu/run.sh OUT_FOLDER   (python3 must have torch and the cockpit's dependencies)
set -u
cd "$(dirname "$0")/../.." || exit 1
out=$1
export GPU_TEST_OUT=$out PYTHONPATH=$PWD:${PYTHONPATH:-}
python3 -m compileall -q cockpit
nvidia-smi -L
python3 -m pytest tests/gpu -s -q -p no:cacheprovider -o addopts= 2>&1 | grep -v Warning | tail -n 90
echo "== one tick's cost on this machine"
python3 tests/gpu/cost.py
echo "== recording (a training, a stray, its kill)"
python3 tests/gpu/record.py "$out/real.jsonl.gz"
echo "== attach: 200 cycles"
python3 tests/gpu/attach_check.py 200
echo "== agent"
python3 tests/gpu/agent_check.py
