"""What to do about causes of the families oom and vram-held."""

from __future__ import annotations

from cockpit.diagnose.fixes import Repair, Row

_RERUN = (
    "run past step and batch of the failure; torch.cuda.max_memory_allocated() stays below 92 % of "
    "the card and num_ooms in torch.cuda.memory_stats() is 0"
)
_RESTART = "progress since the last checkpoint"
_HOLDERS = Row(
    "command",
    "See who holds memory on the GPU",
    "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv",
    "names every process with memory; graphical programs are in `nvidia-smi` only",
)
_BATCH = Row(
    "code-change",
    "Halve the batch and accumulate twice as often",
    "batch_size={half_batch}, gradient_accumulation_steps=twice as many",
    "activations shrink with the batch; the effective batch stays the same",
    loses="some speed",
)
_BF16 = Row(
    "code-change",
    "Compute in bf16",
    "torch.autocast('cuda', dtype=torch.bfloat16)",
    "halves the activations on compute capability 8.0 and newer",
    loses="a little precision",
)
_ATTENTION = Row(
    "code-change",
    "Use an attention without the full score matrix",
    "attn_implementation='sdpa'",
    "the matrix grows with the square of the sequence length",
    wants="attention",
)
_CHECKPOINT = Row(
    "code-change",
    "Recompute activations in the backward pass",
    "model.gradient_checkpointing_enable()  # or torch.utils.checkpoint",
    "trades about 30 % time for most of the activations' memory",
    loses="about 30 % speed",
)
_SNAPSHOT = Row(
    "in-process",
    "Record where the peak comes from",
    "torch.cuda.memory._record_memory_history(); torch.cuda.memory._dump_snapshot('oom.pickle')",
    "shows the tensors of the peak with their stacks before anything is guessed",
)
_KILL_NOTE = "what the process has not saved"

REPAIRS: dict[str, Repair] = {
    "oom_peak": Repair(_RERUN, (_ATTENTION, _BATCH, _BF16, _CHECKPOINT, _SNAPSHOT, _HOLDERS)),
    "oom_fragmentation": Repair(
        _RERUN + "; num_alloc_retries does not grow",
        (
            Row(
                "env",
                "Let segments grow instead of splitting them",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                "the stranded memory becomes usable; torch 2.1 or newer on Linux, set before the "
                "first CUDA call (not with CUDA IPC of older releases)",
            ),
            Row(
                "code-change",
                "Bucket or pad sequences to a few lengths",
                "pad_to_multiple_of=64  # or pack to one length",
                "equal sizes reuse the same blocks: this removes the cause",
                loses="some padding",
            ),
            Row(
                "env",
                "Where expandable segments are not supported: do not split large blocks",
                "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512",
                "for torch before 2.1",
            ),
        ),
    ),
    "oom_other_process": Repair(
        "the GPU's memory.used is near its baseline before the start; the run passes its first "
        "step",
        (
            _HOLDERS,
            Row(
                "env",
                "Use an idle GPU",
                "CUDA_VISIBLE_DEVICES=<index or UUID of an idle GPU>",
                "the lowest memory.used and utilization.gpu over ten seconds",
                loses="nothing; the run starts anew there",
            ),
            Row(
                "command",
                "See whose process it is, then ask the owner or the scheduler",
                "ps -o user,pid,etime,cmd -p {other_pid}",
                "only its owner may end it; an own orphan is `cockpit ps --stray`",
                wants="other_pid",
            ),
        ),
    ),
    "oom_growth": Repair(
        "torch.cuda.memory_allocated() after step 50 stays flat over 20 steps",
        (
            Row(
                "in-process",
                "Watch the memory of each step",
                "print(step, torch.cuda.memory_allocated() >> 20)  # every 10 steps",
                "a steady rise is a leak; a flat line near the limit only lacks headroom",
            ),
            Row(
                "code-change",
                "Keep numbers, not tensors with their graph",
                "losses.append(loss.item()); total += loss.detach(); torch.inference_mode() in "
                "evaluation",
                "a loss kept with its graph keeps all activations of its step",
            ),
            Row(
                "code-change",
                "Leave 5 % headroom where memory is flat",
                "batch_size={half_batch} or slightly less",
                "a full card fails at whatever asks next",
                loses="a little speed",
            ),
        ),
    ),
    "oom_graph_pools": Repair(
        _RERUN,
        (
            Row(
                "code-change",
                "Capture fewer sizes, or share one pool",
                "torch.cuda.graph(g, pool=shared_pool)  # vLLM: --max-num-seqs, --enforce-eager",
                "every captured size keeps its own private memory",
                loses="launch speed of what is not captured",
            ),
            Row(
                "code-change",
                "Compile without graphs",
                "torch.compile(model, mode='default')  # not 'reduce-overhead'",
                "no private pools at all",
                loses="some speed of small kernels",
            ),
        ),
    ),
    "oom_fraction_cap": Repair(
        "torch.cuda.get_per_process_memory_fraction() is what you want and the request passes",
        (
            Row(
                "in-process",
                "Read the limit",
                "torch.cuda.get_per_process_memory_fraction({gpu})",
                "says which share this process may use",
            ),
            Row(
                "code-change",
                "Raise or remove the limit",
                "torch.cuda.set_per_process_memory_fraction(1.0, {gpu})",
                "the card itself has free memory",
            ),
            Row(
                "env",
                "Remove it from the allocator's settings",
                "PYTORCH_CUDA_ALLOC_CONF without per_process_memory_fraction",
                "the same limit can come from the environment, a test harness or a serving stack",
            ),
        ),
    ),
    "oom_pool_budget": Repair(
        "the engine starts and reports a positive cache size",
        (
            Row(
                "command",
                "Give the engine a larger share of the card",
                "--gpu-memory-utilization 0.9  # SGLang: --mem-fraction-static 0.9; JAX: "
                "XLA_PYTHON_CLIENT_MEM_FRACTION=0.9",
                "the budget must hold weights, activation peak and cache",
            ),
            Row(
                "command",
                "Need less of it",
                "--max-model-len 8192 --max-num-seqs 32",
                "shrinks the profiled peak and the cache that one request needs",
                loses="context length",
            ),
            Row(
                "command",
                "Spread or quantise the weights",
                "--tensor-parallel-size 2",
                "where the weights alone exceed the card",
            ),
        ),
    ),
    "oom_ranks_on_one_gpu": Repair(
        "each rank's pid is on its own GPU in `cockpit ps`",
        (
            Row(
                "code-change",
                "Choose the rank's own GPU before anything else",
                "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
                "the default device is 0 for every rank",
            ),
            Row(
                "code-change",
                "Load checkpoints to the CPU",
                "torch.load(path, map_location='cpu')",
                "without it tensors go back to the GPU that they were saved from",
            ),
        ),
    ),
    "oom_host_paging": Repair(
        "allocated stays below the card's capacity and steps have an even speed",
        (
            Row(
                "code-change",
                "Stay below the card's own memory",
                "smaller model, sequence or images, so that allocated < {total}",
                "everything above it crawls through host RAM",
            ),
            Row(
                "command",
                "Let it fail early instead of crawling (Windows host)",
                "NVIDIA Control Panel > CUDA - Sysmem Fallback Policy > Prefer No Sysmem Fallback",
                "the driver then refuses instead of paging",
                risk="admin",
            ),
        ),
    ),
    "oom_disguised": Repair(
        "the first matmul passes with at least 1 GiB free",
        (
            _HOLDERS,
            Row(
                "code-change",
                "Leave memory for the library",
                "gpu_memory_utilization=0.85, or half the batch",
                "handles and workspaces are outside of PyTorch's pool",
            ),
            Row(
                "env",
                "Ask for a smaller workspace",
                "CUBLAS_WORKSPACE_CONFIG=:4096:8",
                "cuBLAS then takes 32 MiB",
                loses="some speed of large products",
            ),
        ),
    ),
    "oom_on_rank": Repair(
        _RERUN + " on every rank",
        (
            Row(
                "command",
                "Compare memory between the ranks",
                "cockpit ps --gpu {gpu}",
                "an unequal rank has longer sequences, more layers, or a second process",
            ),
            _BATCH,
            _CHECKPOINT,
        ),
    ),
    "host_oom": Repair(
        "the run passes the point, and `free -h` or the cgroup's memory.current keeps 10 % free",
        (
            Row(
                "command",
                "Ask the kernel log who ended it",
                "journalctl -k -b --no-pager | grep -iE 'oom-kill|Out of memory|Killed process'",
                "a line with its pid: memory ran out; none: somebody or a scheduler sent kill -9",
                verify="a line of the same minute, or none",
                wants="only_signal",
            ),
            Row(
                "command",
                "See the limit and what was used",
                "free -h; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.events",
                "tells host RAM from a container's or scheduler's limit",
            ),
            Row(
                "code-change",
                "Load without a second copy in RAM",
                "torch.load(path, mmap=True, map_location='cpu')  # transformers: "
                "low_cpu_mem_usage=True, safetensors",
                "each rank otherwise holds the whole checkpoint",
            ),
            Row(
                "code-change",
                "Fewer loader processes with less in flight",
                "num_workers=2, prefetch_factor=2",
                "each worker has its own copy of what the data set touches",
                loses="loading speed",
            ),
            Row(
                "command",
                "Ask for more host memory",
                "#SBATCH --mem=<more>   # docker: --memory; Kubernetes: resources.limits.memory",
                "where the need is real",
                risk="confirm",
                loses=_RESTART,
            ),
        ),
    ),
    "kernel_shared_memory": Repair(
        "the kernel launches; results agree with the eager implementation",
        (
            Row(
                "code-change",
                "Smaller tiles and fewer stages for this GPU",
                "num_stages=1 or 2, smaller BLOCK_M/BLOCK_N/BLOCK_K",
                "required {required} bytes, this GPU has {limit}",
                loses="some speed of the kernel",
            ),
            Row(
                "command",
                "Upgrade the library that ships the kernel",
                "python -m pip install -U <that library>",
                "newer releases have configurations for more generations",
                risk="confirm",
                loses="the installed version",
            ),
            Row(
                "code-change",
                "Use the implementation without Triton",
                "attn_implementation='sdpa'",
                "a work-around",
            ),
        ),
    ),
    "not_oom_corrupt_size": Repair(
        "the printed sizes are plausible on every rank and the step passes",
        (
            Row(
                "code-change",
                "Let every rank reach the same broadcast",
                "no collective inside `if rank == 0:`; torch.distributed.checkpoint for states",
                "after a failed broadcast the length is whatever was in memory",
                wants="collective",
            ),
            Row(
                "in-process",
                "Print shapes before the allocation",
                "print(tensor.shape, tensor.numel())  # at {place}",
                "finds an overflowed product or an uninitialised number",
            ),
        ),
    ),
    "recovered": Repair(
        "num_ooms in torch.cuda.memory_stats() stops growing",
        (
            Row(
                "command",
                "Read the later error: it is what ended the run",
                "sed -n '{fatal_line}p' <this log>",
                "{fatal}",
                wants="fatal",
            ),
            Row(
                "command",
                "Raise the limit of open files",
                "ulimit -n 65536",
                "the run ended with `Too many open files`",
                wants="too_many_files",
            ),
            Row(
                "code-change",
                "Cap the longest batch, so that the retry is not needed",
                "max_tokens=<fewer than now>",
                "every retry costs a step",
            ),
        ),
    ),
    # ── vram-held
    "orphans": Repair(
        "memory.used falls to the baseline and a new process can allocate",
        (
            Row(
                "kill",
                "End the orphans",
                "kill -TERM {kill}",
                "own processes without a parent; SIGKILL only for what ignores SIGTERM",
                risk="confirm",
                loses=_KILL_NOTE,
            ),
            Row(
                "code-change",
                "Start jobs so that they end together",
                "systemd-run --user --scope python train.py",
                "ending the scope ends the workers too",
            ),
        ),
    ),
    "pid_namespace": Repair(
        "used memory equals the sum of the processes seen from the host",
        (
            Row(
                "command",
                "See who holds the device inside this container",
                "ls -l /proc/[0-9]*/fd 2>/dev/null | grep nvidia",
                "the process list of NVML is empty in a PID namespace",
            ),
            Row(
                "command",
                "Look from the host",
                "nvidia-smi; docker ps -q | xargs -n1 docker top",
                "the host sees all containers",
                risk="admin",
            ),
        ),
    ),
    "notebook_refs": Repair(
        "torch.cuda.memory_allocated() falls after it",
        (
            Row(
                "in-process",
                "Drop the traceback and the history",
                "import sys, gc; sys.last_exc = sys.last_value = sys.last_traceback = None; "
                "get_ipython().run_line_magic('reset', '-f out'); gc.collect()",
                "the frames of the exception hold the tensors",
                risk="confirm",
                loses="the notebook's Out history",
            ),
            Row(
                "command",
                "Restart the kernel in Jupyter (Kernel > Restart)",
                "Kernel > Restart",
                "always works; the server stays",
                risk="confirm",
                loses="all variables of this notebook",
            ),
        ),
    ),
    "idle_kernel": Repair(
        "memory.used falls by what the process held",
        (
            Row(
                "command",
                "Shut the kernel down in Jupyter (Running tab)",
                "jupyter: Running > Shut Down  # process {pid}",
                "the clean way: the server knows that it is gone",
                risk="confirm",
                loses="all variables of this notebook",
            ),
            Row(
                "kill",
                "End the process",
                "kill -TERM {pid}",
                "where Jupyter is not reachable",
                risk="confirm",
                loses="all variables of this notebook",
            ),
        ),
    ),
    "unkillable": Repair(
        "the process is gone from `ps` and memory.used has fallen",
        (
            Row(
                "command",
                "See where it hangs",
                "sudo cat /proc/{pid}/stack",
                "the driver's function in it says what it waits for",
                risk="admin",
            ),
            Row(
                "hardware",
                "Reboot when its jobs have ended",
                "sudo reboot",
                "no signal reaches a thread in uninterruptible sleep",
                risk="admin",
                loses="everything that runs on this machine",
            ),
        ),
    ),
    "mps_other_user": Repair(
        "an own process starts on the GPU",
        (
            Row(
                "env",
                "Go past the daemon",
                "CUDA_MPS_PIPE_DIRECTORY=/nonexistent",
                "the process then talks to the GPU itself; works in shared compute mode",
            ),
            Row(
                "command",
                "Ask the owner to end it in its own way",
                "echo quit | nvidia-cuda-mps-control",
                "as its owner; clients finish first",
                risk="admin",
                loses="the owner's MPS service",
            ),
        ),
    ),
    "exclusive_mode": Repair(
        "an own process starts on the GPU",
        (
            Row(
                "command",
                "See who has it",
                "ps -o user,pid,etime,cmd -p {pid}",
                "one process holds the only context",
            ),
            Row("env", "Use another GPU", "CUDA_VISIBLE_DEVICES=<another GPU>", "if one is free"),
            Row(
                "command",
                "Back to shared compute mode",
                "sudo nvidia-smi -i {gpu} -c 0",
                "a scheduler may rely on the mode: ask first",
                risk="admin",
                loses="the exclusive use that somebody set up",
            ),
        ),
    ),
    "graphics_clients": Repair(
        "memory.used falls to the baseline",
        (
            Row(
                "command",
                "Close the browser, or its hardware acceleration",
                "close the programs listed as type G",
                "a browser holds hundreds of MiB",
                risk="confirm",
                loses="open windows",
            ),
            Row(
                "command",
                "Run without the desktop",
                "sudo systemctl isolate multi-user.target",
                "frees all of it",
                risk="admin",
                loses="the graphical session",
            ),
        ),
    ),
    "telemetry_stale": Repair(
        "the reading falls to 0 %",
        (
            Row(
                "command",
                "Open and close a context",
                "python -c \"import torch; torch.zeros(1, device='cuda')\"",
                "refreshes the counter",
            ),
        ),
    ),
    "nvml_mismatch": Repair(
        "nvidia-smi answers, and /proc/driver/nvidia/version equals the library's version",
        (
            Row(
                "wait",
                "Let the running jobs finish, then reboot",
                "sudo reboot",
                "loads the module that fits the libraries; running jobs still work until then",
                risk="admin",
                loses="everything that runs on this machine",
            ),
            Row(
                "command",
                "Without a reboot, when no process uses a GPU",
                "sudo modprobe -r nvidia_drm nvidia_modeset nvidia_uvm nvidia && sudo modprobe "
                "nvidia",
                "loads the new module; fails while anything holds the device",
                risk="admin",
                loses="nothing if no job runs",
            ),
            Row(
                "command",
                "Keep it from coming again",
                "sudo apt-mark hold 'nvidia-*' 'libnvidia-*'",
                "automatic upgrades replaced the libraries",
                risk="admin",
                loses="automatic driver updates",
            ),
        ),
    ),
    "cgroup_devices_lost": Repair(
        "nvidia-smi answers inside the container after `systemctl daemon-reload` on the host",
        (
            Row(
                "command",
                "Create the container again",
                "docker restart <container>",
                "gets the device cgroup back",
                risk="confirm",
                loses="what runs in the container",
            ),
            Row(
                "command",
                "For good: name the devices",
                "sudo nvidia-ctk system create-dev-char-symlinks --create-all  # or CDI / --device",
                "a reload then keeps the permissions",
                risk="admin",
            ),
        ),
    ),
    "dev_permissions": Repair(
        "nvidia-smi answers for this user",
        (
            Row(
                "command",
                "See mode, group and own groups",
                "ls -l /dev/nvidia*; id -nG",
                "says which membership is missing",
            ),
            Row(
                "command",
                "Join the group",
                "sudo usermod -aG {group} $USER  # then log in again",
                "the device files are open to this group only",
                risk="admin",
                wants="group",
            ),
            Row(
                "command",
                "In a container under SELinux",
                "sudo setsebool -P container_use_devices 1  # on the host",
                "enforcing mode denies the device files to containers",
                risk="admin",
                wants="selinux",
            ),
        ),
    ),
    "needs_open_module": Repair(
        "modinfo -F license nvidia prints `Dual MIT/GPL` and nvidia-smi lists the GPU",
        (
            Row(
                "command",
                "See the flavour of the module",
                "modinfo -F license nvidia",
                "`NVIDIA` is proprietary, `Dual MIT/GPL` open",
            ),
            Row(
                "command",
                "Install the open flavour of the same branch",
                "sudo apt-get install nvidia-open && sudo reboot",
                "Blackwell and Grace-Hopper need it",
                risk="admin",
                loses="everything that runs on this machine",
            ),
        ),
    ),
}
