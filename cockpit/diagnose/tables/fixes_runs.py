"""What to do about causes of the families slow and multi-gpu."""

from __future__ import annotations

from cockpit.diagnose.fixes import Repair, Row

_STEP = "the median time of 50 steps before and after; less than 3 % is noise"
_ALL_REDUCE = "all_reduce_perf -b 8 -e 128M -f 2 on the same GPUs; then the job passes the step"
_RUN = "progress since the last checkpoint"
_MACHINE = "everything that runs on this machine"
_STACKS = Row(
    "command",
    "See where each rank is while it hangs",
    "{stacks_of}",
    "the rank outside of a collective is the one",
)
_RECORDER = Row(
    "env",
    "Let the next run record its collectives",
    "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1",
    "`torchfrtrace` then names rank and line (older: TORCH_NCCL_TRACE_BUFFER_SIZE)",
    loses="a little speed",
)
_SAME_CALLS = Row(
    "code-change",
    "Let all ranks make the same calls",
    "no collective inside `if rank == 0:`; a barrier of all ranks around evaluation and saving",
    "a branch that depends on the rank leaves the others waiting",
)

REPAIRS: dict[str, Repair] = {
    "dataloader": Repair(
        _STEP + "; data time below 5 %",
        (
            Row(
                "code-change",
                "More workers that stay",
                "DataLoader(num_workers=<cores / GPUs>, pin_memory=True, persistent_workers=True, "
                "prefetch_factor=4)",
                "the next batches are made while the GPU computes",
                loses="host memory",
            ),
            Row(
                "command",
                "Bring the data closer",
                "copy it to local NVMe, or pack it into shards (webdataset, LMDB)",
                "network storage is slow with many small files",
            ),
            Row(
                "command",
                "See what a worker waits for",
                "py-spy dump --pid <pid of a worker>",
                "state D is the disk, state R the CPU",
            ),
        ),
    ),
    "num_workers_low": Repair(
        _STEP,
        (
            Row(
                "code-change",
                "Load in workers, as many as this job has cores",
                "num_workers=min(8, len(os.sched_getaffinity(0)) // local_world_size), "
                "persistent_workers=True, pin_memory=True",
                "the number that the warning suggests ignores limits of the container and the "
                "other ranks",
                loses="host memory and /dev/shm",
            ),
        ),
    ),
    "cpu_oversubscribed": Repair(
        _STEP + "; nr_throttled in cpu.stat does not grow",
        (
            Row(
                "code-change",
                "No more workers than cores",
                "num_workers=len(os.sched_getaffinity(0)) // local_world_size; "
                "torch.set_num_threads(1) in workers",
                "what is too much only waits",
            ),
            Row(
                "command",
                "See the container's limit",
                "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu.stat",
                "nr_throttled counts how often it was stopped",
            ),
            Row("env", "One thread a process", "OMP_NUM_THREADS=1", "libraries start one a core"),
        ),
    ),
    "thermal": Repair(
        "clocks_event_reasons.active has no thermal bit under load; steps are even again",
        (
            Row(
                "command",
                "Watch temperature, fan and clock",
                "nvidia-smi -i {gpu} --query-gpu=index,temperature.gpu,fan.speed,clocks.sm,"
                "power.draw,clocks_event_reasons.active --format=csv -l 1",
                "the clock falls when the temperature reaches its limit",
            ),
            Row(
                "hardware",
                "Clean filters; check fans, airflow and the neighbouring cards",
                "cooling of GPU {gpu}",
                "the cause is heat, not the program",
                risk="admin",
            ),
            Row(
                "command",
                "Until then: less power",
                "sudo nvidia-smi -i {gpu} -pl <80 % of the default>",
                "an even clock is faster than one that collapses",
                risk="admin",
                loses="peak speed",
            ),
        ),
    ),
    "power_brake": Repair(
        "HW Power Brake Slowdown is not active under load",
        (
            Row(
                "hardware",
                "Check power supplies, cables and the chassis' power cap",
                "BMC: power supply state, redundancy, power capping",
                "the signal comes from outside of the GPU",
                risk="admin",
            ),
        ),
    ),
    "power_limit_lowered": Repair(
        "power.limit equals power.default_limit",
        (
            Row(
                "command",
                "Compare limit and default",
                "nvidia-smi --query-gpu=index,power.limit,power.default_limit --format=csv",
                "somebody may have lowered it on purpose",
            ),
            Row(
                "command",
                "Back to the default",
                "sudo nvidia-smi -i {gpu} -pl {default_limit_w}",
                "the card is made for it",
                risk="admin",
                loses="the saving that somebody wanted",
            ),
        ),
    ),
    "sync": Repair(
        _STEP,
        (
            Row(
                "code-change",
                "Keep sums on the GPU and read them rarely",
                "running += loss.detach()  # .item() every N steps; lines {lines}",
                "each .item(), print or comparison waits for all kernels",
            ),
            Row(
                "code-change",
                "Check for NaN every N steps",
                "if step % 100 == 0 and torch.isnan(loss): ...",
                "an `if` on a tensor of the GPU waits",
            ),
            Row(
                "code-change",
                "Copy without waiting",
                "x.to('cuda', non_blocking=True)  # from pinned memory",
                "the copy then overlaps with kernels",
            ),
        ),
    ),
    "launch_bound": Repair(
        _STEP + "; power rises",
        (
            Row(
                "code-change",
                "Compile or capture",
                "torch.compile(model, mode='reduce-overhead')",
                "one graph instead of thousands of launches",
                loses="compile time",
            ),
            Row(
                "code-change",
                "Do more in a launch",
                "larger batch; fused optimizer (fused=True)",
                "each kernel then outlasts its launch",
                loses="memory",
            ),
        ),
    ),
    "alloc_retries": Repair(
        "num_alloc_retries in torch.cuda.memory_stats() does not grow; " + _STEP,
        (
            Row(
                "env",
                "Let segments grow",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                "less memory is stranded",
            ),
            Row(
                "code-change",
                "Need less memory a step",
                "smaller micro-batch; stage3_prefetch_bucket_size and reduce_bucket_size 5e7",
                "some headroom ends the flushing",
                loses="a little speed",
            ),
            Row(
                "code-change",
                "Flush on all ranks at the same step",
                "get_accelerator().empty_cache() every N steps on all ranks",
                "otherwise each rank's flush stops all the others",
            ),
        ),
    ),
    "recompile": Repair(
        "TORCH_LOGS=recompiles is silent after the first 20 steps; " + _STEP,
        (
            Row(
                "code-change",
                "Few shapes",
                "pad or bucket sequence lengths to multiples of 64",
                "function {function} is compiled for each new shape",
                loses="some padding",
            ),
            Row(
                "code-change",
                "Or one program for all shapes",
                "torch.compile(model, dynamic=True)",
                "the size becomes a variable",
                loses="a little speed",
            ),
            Row("env", "See each reason", "TORCH_LOGS=recompiles", "names the guard that changes"),
        ),
    ),
    "pcie_width": Repair(
        "pcie.link.width.current equals pcie.link.width.max under load",
        (
            Row(
                "hardware",
                "Seat card and riser again; check the BIOS' bifurcation",
                "GPU {gpu}, with the power off",
                "lanes without contact are left out",
                risk="admin",
                loses=_MACHINE,
            ),
            Row(
                "env",
                "Until then leave this GPU out",
                "CUDA_VISIBLE_DEVICES={the_other_gpus}",
                "it holds the others back",
            ),
            Row(
                "command",
                "Measure the link",
                "nvbandwidth -t host_to_device_memcpy_ce",
                "shows what it really carries",
            ),
        ),
    ),
    "shared_gpu": Repair(
        _STEP,
        (
            Row(
                "command",
                "See who shares it",
                "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv",
                "two programs take turns",
            ),
            Row(
                "env",
                "Use an idle GPU",
                "CUDA_VISIBLE_DEVICES=<an idle GPU>",
                "alone it is as fast as before",
                loses="nothing; the run starts anew there",
            ),
        ),
    ),
    "no_mixed_precision": Repair(
        _STEP,
        (
            Row(
                "code-change",
                "Use TF32 or bf16",
                "torch.set_float32_matmul_precision('high')  # or torch.autocast('cuda', "
                "dtype=torch.bfloat16)",
                "tensor cores need these types",
                loses="a little precision",
            ),
        ),
    ),
    # ── multi-gpu
    "rank_behind": Repair(
        "the job passes the failing step",
        (
            _STACKS,
            _SAME_CALLS,
            _RECORDER,
            Row(
                "code-change",
                "Only where one rank legitimately needs long: more time for that phase",
                "dist.init_process_group(timeout=timedelta(minutes=60))",
                "does not cure a rank that never comes",
            ),
        ),
    ),
    "collective_timeout": Repair(
        "the job passes the failing step",
        (
            Row(
                "command",
                "Read the last lines of the ranks that report nothing",
                "ranks other than {timed_out_ranks}",
                "they did not come or did not finish",
                wants="timed_out_ranks",
            ),
            _STACKS,
            _RECORDER,
            _SAME_CALLS,
        ),
    ),
    "uneven_inputs": Repair(
        "an epoch ends on all ranks",
        (
            Row(
                "code-change",
                "The same number of batches on all ranks",
                "DistributedSampler(drop_last=True)  # or the Join context manager",
                "the rank without a batch leaves the others waiting",
            ),
            Row(
                "env",
                "Compare the calls",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL",
                "names the first collective that differs",
                loses="speed",
            ),
            _SAME_CALLS,
        ),
    ),
    "shm_too_small": Repair(
        "df -h /dev/shm inside the container shows the new size, and the first step passes",
        (
            Row(
                "command",
                "Start the container with more shared memory",
                "docker run --shm-size=16g <image>   # or --ipc=host; Kubernetes: emptyDir with "
                "medium Memory on /dev/shm",
                "the size is fixed at the start",
                risk="confirm",
                loses="what runs in the present container",
            ),
            Row(
                "code-change",
                "Or need less of it",
                "num_workers=2, prefetch_factor=2; torch.multiprocessing.set_sharing_strategy("
                "'file_system')",
                "every batch in flight is in /dev/shm",
                loses="loading speed",
            ),
            Row(
                "env",
                "As a work-around for NCCL only",
                "NCCL_SHM_DISABLE=1",
                "goes through the network stack instead",
                loses="speed of the collectives",
            ),
        ),
    ),
    "p2p_acs": Repair(
        _ALL_REDUCE,
        (
            Row(
                "env",
                "Go around it",
                "NCCL_P2P_DISABLE=1",
                "if it then works, peer-to-peer is the cause",
                loses="speed of the collectives",
            ),
            Row(
                "hardware",
                "Switch ACS off, or iommu=pt",
                "BIOS: ACS disabled; kernel parameter iommu=pt (bare metal only)",
                "peer traffic then takes the direct way; in a virtual machine ACS must stay",
                risk="admin",
                loses=_MACHINE,
            ),
            Row(
                "command",
                "Compare a copied tensor",
                "python -c \"import torch; a=torch.ones(9,device='cuda:0'); "
                "print(a.to('cuda:1').cpu().equal(a.cpu()))\"",
                "silent corruption is possible too",
            ),
        ),
    ),
    "duplicate_gpu": Repair(
        "each rank's pid is on its own GPU in `cockpit ps`",
        (
            Row(
                "code-change",
                "Use the local rank",
                "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
                "without it each rank takes GPU 0",
            ),
            Row(
                "command",
                "No more ranks than GPUs",
                "torchrun --nproc_per_node=gpu <script>",
                "NCCL needs one GPU a rank",
            ),
        ),
    ),
    "too_many_ranks": Repair(
        'python -c "import torch; print(torch.cuda.device_count())" is not below the ranks of a '
        "node",
        (
            Row(
                "command",
                "One rank a visible GPU",
                "torchrun --nproc_per_node=gpu <script>",
                "rank {rank} has no GPU of its own",
            ),
            Row(
                "env",
                "Look at what the process may see",
                "echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L",
                "ordinals count within CUDA_VISIBLE_DEVICES",
            ),
        ),
    ),
    "io_stall": Repair(
        "all ranks pass their first collective",
        (
            Row(
                "command",
                "See which processes are in state D and where",
                "ps -eo pid,stat,wchan:30,cmd | grep ' D'",
                "uninterruptible sleep is storage or the driver",
            ),
            Row(
                "command",
                "Check the file system that they read",
                "timeout 10 ls <data directory>; dmesg | grep -i 'not responding'",
                "a hung mount freezes every process on it",
            ),
            Row(
                "command",
                "Or the stacks",
                "py-spy dump --pid <pid of a worker>",
                "imports can hang as well",
            ),
        ),
    ),
    "peer_died": Repair(
        "the job passes the failing step",
        (
            Row(
                "command",
                "Read the first error of the peer",
                "the log of {peer}, before its last lines",
                "what ended it is there",
            ),
            Row(
                "command",
                "On the peer: did the kernel end it?",
                "journalctl -k -b --no-pager | grep -E 'Out of memory|Xid'",
                "an ended process leaves no traceback",
            ),
        ),
    ),
    "rendezvous": Repair(
        "all ranks print that the process group is there",
        (
            Row(
                "command",
                "From each node: is the port open?",
                "nc -zv {master_addr} {master_port}",
                "tells name and route from a process that is not there",
            ),
            Row(
                "env",
                "The same address on all nodes, and the right interface",
                "MASTER_ADDR={master_addr} MASTER_PORT={master_port} NCCL_SOCKET_IFNAME=<device>",
                "localhost on the second node is the second node",
            ),
            Row(
                "command",
                "Did all nodes start?",
                "torchrun --nnodes=<N> --node_rank=<0..N-1> --rdzv-endpoint={master_addr}:"
                "{master_port} <script>",
                "the store waits for the missing one",
            ),
        ),
    ),
    "port_in_use": Repair(
        "the process group is there",
        (
            Row(
                "command",
                "Choose a free port",
                "torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:0 <script>",
                "0 lets the system choose",
            ),
            Row(
                "command",
                "See who listens and whether it works",
                "ps -o user,pid,ppid,etime,cmd -p {pid}",
                "a live job keeps its port; an own orphan (ppid 1) is `cockpit ps --stray`",
                wants="pid",
            ),
            Row(
                "command",
                "See who listens on port {port}",
                "ss -ltnp 'sport = :{port}'",
                "another user's process shows no pid; then choose another port",
                wants="port",
            ),
        ),
    ),
    "straggler": Repair(
        "the ranks' compute times differ by less than 10 %",
        (
            Row(
                "command",
                "Compare clocks, power and throttle reasons",
                "nvidia-smi --query-gpu=index,power.draw,clocks.sm,temperature.gpu,"
                "clocks_event_reasons.active --format=csv",
                "rank {rank} is the slow one",
            ),
            Row(
                "hardware",
                "Repair what slows that GPU",
                "cooling, power and PCIe link of rank {rank}'s GPU",
                "see the flow `slow` for it",
                risk="admin",
            ),
            Row(
                "env",
                "Or leave it out",
                "CUDA_VISIBLE_DEVICES={the_other_gpus}",
                "the others run at full speed again",
                loses="one GPU",
            ),
        ),
    ),
    "nccl_version_mismatch": Repair(
        _ALL_REDUCE,
        (
            Row(
                "command",
                "Compare on all nodes",
                'python -c "import torch; print(torch.__version__, torch.cuda.nccl.version())"',
                "the wire format differs between releases",
            ),
            Row(
                "command",
                "Install the same build everywhere",
                "python -m pip install torch==<one version>  # and no NCCL in LD_LIBRARY_PATH",
                "a system NCCL may win over the wheel's",
                risk="confirm",
                loses="the installed version",
            ),
        ),
    ),
}
