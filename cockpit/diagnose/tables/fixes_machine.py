"""What to do about causes of the families no-cuda and kernel-fault."""

from __future__ import annotations

from cockpit.diagnose.fixes import Repair, Row

_SMALL = (
    "python -c \"import torch; x=torch.ones(8,device='cuda'); print(x.sum().item(), "
    "torch.version.cuda, torch.cuda.get_device_name())\" with the job's interpreter"
)
_ENVIRONMENT = "the installed versions; `python -m pip freeze` writes them down first"
_MACHINE = "everything that runs on this machine"
_JOBS = "the jobs on this GPU"
_BLOCKING = Row(
    "env",
    "Make the traceback name the failing call",
    "CUDA_LAUNCH_BLOCKING=1",
    "CUDA reports errors of kernels late",
    loses="speed, for this run",
)
_SANITIZER = Row(
    "command",
    "Find the access",
    "compute-sanitizer --tool memcheck --target-processes all {command}",
    "names kernel, thread and address; one step is enough",
    loses="speed: 10 to 100 times slower",
)
_RESTART = Row(
    "command",
    "Restart the process or the notebook's kernel",
    "end it, and start it again",
    "the CUDA context is lost after such an error",
    risk="confirm",
    loses="variables, and progress since the last checkpoint",
)
_ON_CPU = Row(
    "in-process",
    "Run the same batch on the CPU, in a new process",
    "CUDA_VISIBLE_DEVICES='' {command}",
    "gives the plain IndexError with the number",
)

REPAIRS: dict[str, Repair] = {
    "cpu_wheel": Repair(
        _SMALL,
        (
            Row(
                "command",
                "Install the CUDA build of the same versions into the job's environment",
                "python -m pip install --force-reinstall --no-deps torch=={torch_base} "
                "{companions} --index-url https://download.pytorch.org/whl/{wheel} && "
                "python -m pip install torch=={torch_base} {companions} --index-url "
                "https://download.pytorch.org/whl/{wheel}",
                "torch, torchvision and torchaudio belong together and come from one index; the "
                "second call adds the CUDA libraries that a CPU build did not need",
                risk="confirm",
                loses=_ENVIRONMENT,
                wants="wheel",
            ),
            Row(
                "command",
                "Pin it against the next dependency",
                "printf 'torch=={before}\\n' > constraints.txt && python -m pip install -c "
                "constraints.txt -r requirements.txt",
                "another package replaced the build",
                wants="before",
            ),
            Row(
                "code-change",
                "Fail instead of falling back",
                "assert torch.cuda.is_available(), torch.__version__",
                "a silent fall-back trains on the CPU for days",
            ),
        ),
    ),
    "driver_too_old": Repair(
        _SMALL,
        (
            Row(
                "command",
                "Install a build of PyTorch for this driver",
                "python -m pip install --force-reinstall torch torchvision torchaudio --index-url "
                "https://download.pytorch.org/whl/{wheel}",
                "the driver supports CUDA up to {driver_cuda}",
                risk="confirm",
                loses=_ENVIRONMENT,
                wants="wheel",
            ),
            Row(
                "command",
                "See the driver's own version",
                "nvidia-smi --query-gpu=driver_version,name --format=csv,noheader",
                "CUDA 12 needs 525.60, CUDA 13 needs 580.65",
            ),
            Row(
                "hardware",
                "Ask the administrator for a newer driver",
                "driver branch R580 and a reboot",
                "for the newest builds",
                risk="admin",
                loses=_MACHINE,
            ),
        ),
    ),
    "arch_missing": Repair(
        'python -c "import torch; print(torch.cuda.get_arch_list(), '
        "torch.cuda.get_device_capability(), torch.ones(8,device='cuda').sum())\"",
        (
            Row(
                "command",
                "Install a build with code for this GPU",
                "python -m pip install --force-reinstall torch torchvision torchaudio --index-url "
                "https://download.pytorch.org/whl/{wheel}",
                "the device is sm {device_sm}; the installed build has {wheel_sms}",
                risk="confirm",
                loses=_ENVIRONMENT,
                wants="wheel",
            ),
            Row(
                "command",
                "See what the build has",
                'python -c "import torch; print(torch.cuda.get_arch_list(), '
                'torch.cuda.get_device_capability())"',
                "the list of the installed wheel is the truth",
            ),
        ),
    ),
    "extension_arch_missing": Repair(
        "the extension's own test passes on this GPU",
        (
            Row(
                "command",
                "Build the extension for this GPU",
                "TORCH_CUDA_ARCH_LIST='{device_sm}' MAX_JOBS=8 python -m pip install "
                "--no-build-isolation --no-binary {extension} --force-reinstall "
                "--no-deps {extension}",
                "its binary has no code for this generation",
                risk="confirm",
                loses="the installed version of {extension}",
            ),
            Row(
                "code-change",
                "Go without it",
                "attn_implementation='sdpa'",
                "PyTorch's own kernels work here",
            ),
            Row(
                "command",
                "See what its binary has",
                "cuobjdump --list-elf <its .so file> | grep -o 'sm_[0-9]*' | sort -u",
                "names the generations it was built for",
            ),
        ),
    ),
    "container_without_gpu": Repair(
        "nvidia-smi -L lists the GPU inside the container or job",
        (
            Row(
                "command",
                "Use the host's own Docker engine",
                "docker context use default",
                "Docker Desktop runs in a virtual machine without the host's driver libraries",
                risk="confirm",
                loses="the view of the other context's containers",
                wants="docker_context",
            ),
            Row(
                "command",
                "Start it with the GPU",
                "docker run --gpus all <image>   # podman: --device nvidia.com/gpu=all",
                "device files and driver libraries are passed in at the start only",
                risk="confirm",
                loses="what runs in the present container",
                unless="without_gpu",
            ),
            Row(
                "command",
                "On a cluster: ask for a GPU",
                "srun --gres=gpu:1 --pty bash",
                "login nodes have none",
            ),
            Row(
                "command",
                "Tell Docker about the NVIDIA runtime (once, on the host)",
                "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart "
                "docker",
                "where `--gpus` is not known",
                risk="admin",
                loses="all other containers stop at the restart of Docker",
                unless="without_gpu",
            ),
        ),
    ),
    "uvm_state": Repair(
        _SMALL,
        (
            Row(
                "command",
                "Load the module again, when no process uses a GPU",
                "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm",
                "suspend and resume leave it broken",
                risk="admin",
                loses=_JOBS,
            ),
            Row(
                "command",
                "Keep video memory over suspend",
                "options nvidia NVreg_PreserveVideoMemoryAllocations=1",
                "in /etc/modprobe.d, with the nvidia-suspend services on",
                risk="admin",
            ),
        ),
    ),
    "uvm_hmm": Repair(
        _SMALL,
        (
            Row(
                "command",
                "Switch HMM off in the module and reboot",
                "echo 'options nvidia_uvm uvm_disable_hmm=1' | sudo tee "
                "/etc/modprobe.d/nvidia-uvm-hmm.conf && sudo update-initramfs -u && sudo reboot",
                "HMM needs an address region that it cannot get here",
                risk="admin",
                loses=_MACHINE,
            ),
            Row(
                "command",
                "Or boot without address randomisation",
                "kernel parameter nokaslr",
                "leaves the region free",
                risk="admin",
                loses="a protection of the kernel",
            ),
        ),
    ),
    "cvd_hides_gpus": Repair(
        _SMALL,
        (
            Row(
                "env",
                "Take it away, or name a GPU",
                "unset CUDA_VISIBLE_DEVICES   # or CUDA_VISIBLE_DEVICES=0",
                "its value in the job is '{cvd}'",
            ),
            Row(
                "command",
                "Find who sets it",
                "grep -n CUDA_VISIBLE_DEVICES ~/.bashrc ~/.profile *.py *.sh",
                "a profile, a notebook, an IDE or the scheduler",
            ),
        ),
    ),
    "cvd_bad_uuid": Repair(
        'python -c "import torch; print(torch.cuda.device_count())" prints the expected number',
        (
            Row(
                "env",
                "Correct the entry",
                "CUDA_VISIBLE_DEVICES={cvd_fixed}",
                "{bad_entry} names no device, and what stands after it is dropped",
            ),
            Row(
                "command",
                "See the exact UUIDs",
                "nvidia-smi -L",
                "a prefix that is unique is enough",
            ),
        ),
    ),
    "cvd_after_init": Repair(
        "torch.cuda.device_count() is the number of entries",
        (
            Row(
                "env",
                "Set it before the program starts",
                "CUDA_VISIBLE_DEVICES=0 {command}",
                "it is read once, at the first CUDA call",
            ),
            Row(
                "code-change",
                "Or before torch is imported",
                "os.environ['CUDA_VISIBLE_DEVICES'] = '0'  # first lines of the program",
                "after the first CUDA call it does nothing",
            ),
        ),
    ),
    "fabric_manager": Repair(
        "nvidia-smi -q | grep -A3 -w Fabric shows State: Completed, Status: Success",
        (
            Row(
                "command",
                "Compare the versions",
                "dpkg -l | grep -E 'nvidia-(fabricmanager|driver|kernel)'; "
                "cat /proc/driver/nvidia/version",
                "Fabric Manager must have exactly the driver's version",
            ),
            Row(
                "command",
                "Install the fitting one and start it",
                "sudo apt-get install nvidia-fabricmanager-{driver_branch}={driver_version}-1 && "
                "sudo systemctl restart nvidia-fabricmanager",
                "only on machines with NVSwitch",
                risk="admin",
                loses="running jobs that use NVLink",
            ),
        ),
    ),
    "compat_libcuda": Repair(
        _SMALL,
        (
            Row(
                "env",
                "Use the driver's own libcuda",
                "LD_LIBRARY_PATH without /usr/local/cuda/compat",
                "forward compatibility does not exist for this GPU",
            ),
            Row(
                "command",
                "See which is found",
                "ldconfig -p | grep libcuda.so",
                "compat wins there",
            ),
        ),
    ),
    "code_uses_cpu": Repair(
        "the job's pid appears in nvidia-smi",
        (
            Row(
                "code-change",
                "Put model and data on the same GPU",
                "model.to('cuda'); batch = batch.to('cuda', non_blocking=True)",
                "{place}",
            ),
            Row(
                "code-change",
                "Look for a device choice in the configuration",
                "use_cpu: false, no_cuda: false, n_gpu_layers=-1, "
                "providers=['CUDAExecutionProvider']",
                "frameworks have their own switches",
            ),
        ),
    ),
    "checkpoint_device": Repair(
        "the load passes",
        (
            Row(
                "code-change",
                "Load the checkpoint into host memory",
                "torch.load(path, map_location='cpu')",
                "load_state_dict then copies it to where the model is",
            ),
        ),
    ),
    "module_not_built_for_kernel": Repair(
        "lsmod | grep ^nvidia, then nvidia-smi",
        (
            Row(
                "command",
                "Build the module for the running kernel",
                "sudo apt-get install linux-headers-$(uname -r) && sudo dkms autoinstall && "
                "sudo modprobe nvidia",
                "the headers of the running kernel are needed for it",
                risk="admin",
            ),
            Row(
                "hardware",
                "Or boot the previous kernel",
                "choose it in the boot menu",
                "the module exists for it",
                risk="admin",
                loses=_MACHINE,
            ),
            Row(
                "command",
                "With Secure Boot: enrol the key",
                "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der",
                "`Key was rejected by service` means an unsigned module",
                risk="admin",
                loses="a reboot",
            ),
        ),
    ),
    "nouveau": Repair(
        "lspci -nnk -d 10de: shows `Kernel driver in use: nvidia`",
        (
            Row(
                "command",
                "Keep nouveau from loading and reboot",
                "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee "
                "/etc/modprobe.d/blacklist-nouveau.conf && sudo update-initramfs -u && sudo reboot",
                "one driver can own a device",
                risk="admin",
                loses=_MACHINE,
            ),
        ),
    ),
    "mig_single_instance": Repair(
        "torch.cuda.device_count() is 1 in each process",
        (
            Row(
                "env",
                "One process for each instance",
                "CUDA_VISIBLE_DEVICES=MIG-<uuid of one instance>",
                "CUDA enumerates one MIG instance a process",
            ),
            Row(
                "command",
                "Or switch MIG off for multi-GPU jobs",
                "sudo nvidia-smi -i {gpu} -mig 0",
                "NCCL needs whole GPUs",
                risk="admin",
                loses="all instances and the jobs in them",
            ),
        ),
    ),
    "bnb_lib_missing": Repair(
        "python -m bitsandbytes prints SUCCESS",
        (
            Row(
                "command",
                "Upgrade bitsandbytes",
                "python -m pip install -U bitsandbytes",
                "newer releases have a library for {wanted}",
                risk="confirm",
                loses="the installed version",
            ),
            Row(
                "command",
                "See which libraries it has",
                "ls $(python -c \"import importlib.util as u; print(u.find_spec('bitsandbytes')"
                '.submodule_search_locations[0])")/*.so',
                "BNB_CUDA_VERSION may name one of these and no other",
            ),
        ),
    ),
    "torchvision_mismatch": Repair(
        'python -c "import torch, torchvision; print(torch.__version__, torchvision.__version__)"',
        (
            Row(
                "command",
                "Install the pair from one index",
                "python -m pip install --force-reinstall torch torchvision torchaudio --index-url "
                "https://download.pytorch.org/whl/{wheel}",
                "the triple belongs together",
                risk="confirm",
                loses=_ENVIRONMENT,
                wants="wheel",
            ),
        ),
    ),
    "fork_after_init": Repair(
        "the loader's first batch arrives",
        (
            Row(
                "code-change",
                "Keep the data set on the CPU; move batches in the training loop",
                "x = x.to('cuda', non_blocking=True)  # DataLoader(pin_memory=True)",
                "workers then need no CUDA: {place}",
            ),
            Row(
                "code-change",
                "Or start workers anew",
                "DataLoader(..., multiprocessing_context='spawn')",
                "a spawned process has its own CUDA context",
                loses="start-up time and 0.6 GiB of GPU memory a worker",
            ),
            Row(
                "env",
                "Where only a check started CUDA",
                "PYTORCH_NVML_BASED_CUDA_CHECK=1",
                "is_available() then does not open a context",
            ),
        ),
    ),
    # ── kernel-fault
    "index_out_of_range": Repair(
        "the assert on minimum and maximum passes for a whole epoch",
        (
            Row(
                "in-process",
                "Check the index before the kernel does",
                "assert 0 <= ids.min() and ids.max() < "
                "model.get_input_embeddings().num_embeddings, "
                "(ids.min(), ids.max())",
                "kernel {kernel} looks up a table",
            ),
            Row(
                "code-change",
                "Make the table as long as the tokenizer",
                "model.resize_token_embeddings(len(tokenizer))",
                "tokens were added without resizing the model",
            ),
            Row(
                "code-change",
                "Cut sequences to the position table",
                "tokenizer(..., truncation=True, max_length=model.config.max_position_embeddings)",
                "a longer sequence has no position",
            ),
            _BLOCKING,
            _RESTART,
        ),
    ),
    "label_out_of_range": Repair(
        "torch.unique(y) lies within the classes for the whole data set",
        (
            Row(
                "in-process",
                "Look at the labels",
                "print(torch.unique(y)); assert y.min() >= 0 and y.max() < n_classes",
                "kernel {kernel} checks the target",
            ),
            Row(
                "code-change",
                "Ignore or map the odd value",
                "CrossEntropyLoss(ignore_index=255)  # or remap labels, or one class more",
                "masks often use 255 for `ignore`",
            ),
            _BLOCKING,
            _RESTART,
        ),
    ),
    "sticky_context": Repair(
        "a fresh process computes a matmul on this GPU",
        (
            _RESTART,
            _BLOCKING,
            _ON_CPU,
        ),
    ),
    "illegal_access": Repair(
        "one epoch without the error, and no new Xid for this process",
        (
            Row(
                "command",
                "Read the kernel log of the node where it happened",
                "ssh {node} journalctl -k -b --no-pager | grep Xid",
                "the error is of {node}; this machine's log says nothing about it",
                wants="node",
            ),
            _BLOCKING,
            Row(
                "env",
                "Without compiled kernels",
                "TORCHDYNAMO_DISABLE=1",
                "tells a compiled or custom kernel from the rest",
                loses="speed",
            ),
            _SANITIZER,
            _ON_CPU,
            _RESTART,
        ),
    ),
    "misaligned": Repair("one epoch without the error", (_BLOCKING, _SANITIZER, _RESTART)),
    "library_shape_or_async": Repair(
        "the failing step passes",
        (
            _BLOCKING,
            Row(
                "code-change",
                "Split the batch or the sequence",
                "each tensor below 2**31 elements",
                "the library counts in 32 bits",
            ),
            Row(
                "in-process",
                "As a test only: without cuDNN",
                "torch.backends.cudnn.enabled = False",
                "tells the library from an earlier fault; slow, so not for good",
                loses="speed",
            ),
            Row(
                "command",
                "A newer PyTorch brings a newer library",
                "python -m pip install -U torch",
                "limits were lifted over time",
                risk="confirm",
                loses=_ENVIRONMENT,
            ),
        ),
    ),
    "foreign_libcublas": Repair(
        "grep -E 'cublas|cudnn' /proc/PID/maps shows one origin, and the product passes",
        (
            Row(
                "env",
                "Start without the foreign directories",
                "env -u LD_LIBRARY_PATH {command}",
                "{foreign} wins over the wheel's own library",
            ),
            _BLOCKING,
        ),
    ),
    "gpu_off_bus": Repair(
        "nvidia-smi -L and lspci -d 10de: count the same GPUs; no new Xid 79 under load",
        (
            Row(
                "env",
                "Go on with the other GPUs",
                "CUDA_VISIBLE_DEVICES={the_other_gpus}",
                "only {pci} is gone",
            ),
            Row(
                "command",
                "Save what the driver knows",
                "lspci -vvs {pci} | grep -E 'LnkSta|!!!|rev ff'; sudo nvidia-bug-report.sh",
                "before the reboot wipes it",
                risk="admin",
            ),
            Row(
                "hardware",
                "Power-cycle the machine; then look at seat, power cables and heat",
                "cold power cycle; BIOS: Above 4G decoding",
                "a reset does not reach a GPU that is off the bus",
                risk="admin",
                loses=_MACHINE,
            ),
        ),
    ),
    "ecc_contained": Repair(
        "nvidia-smi -q -d ROW_REMAPPER shows Pending: No and no remapping failure",
        (
            Row(
                "command",
                "Restart the job, on another GPU if possible",
                "CUDA_VISIBLE_DEVICES=<another GPU> {command}",
                "only this process was hit",
                risk="confirm",
                loses="progress since the last checkpoint",
            ),
            Row(
                "command",
                "Reset the GPU when it is idle",
                "sudo nvidia-smi --gpu-reset -i {gpu}",
                "brings in the spare row",
                risk="admin",
                loses=_JOBS,
            ),
            Row(
                "command",
                "Look at the remapper",
                "nvidia-smi -q -d ROW_REMAPPER",
                "a remapping failure would be another matter",
            ),
        ),
    ),
    "ecc_dbe": Repair(
        "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT shows nothing pending",
        (
            Row(
                "command",
                "Stop the jobs on the GPU and reset it",
                "sudo nvidia-smi --gpu-reset -i {gpu}",
                "results since the error are not to be trusted",
                risk="admin",
                loses=_JOBS,
            ),
            Row(
                "command",
                "Look at the memory's health",
                "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT",
                "pending and failed repairs are listed",
            ),
            Row(
                "command",
                "Test it while idle",
                "dcgmi diag -r 3",
                "finds a second fault",
                risk="admin",
                loses="the GPU for some minutes",
            ),
        ),
    ),
    "remap_failure": Repair(
        "the GPU is replaced; the new one passes dcgmi diag -r 3",
        (
            Row(
                "hardware",
                "Take the GPU out of service and have it replaced (RMA)",
                "drain the GPU; open a case with the vendor",
                "no spare rows are left",
                risk="admin",
                loses=_JOBS,
            ),
            Row(
                "command",
                "Save the evidence for the vendor",
                "dcgmi diag -r 3; sudo nvidia-bug-report.sh",
                "the vendor asks for it",
                risk="admin",
            ),
        ),
    ),
    "gsp_timeout": Repair(
        "timeout 20 nvidia-smi answers, and no new Xid 119 comes",
        (
            Row(
                "command",
                "Drain the GPU and reset it",
                "sudo nvidia-smi --gpu-reset -i {gpu}",
                "restarts the firmware where it still can",
                risk="admin",
                loses=_JOBS,
            ),
            Row(
                "hardware",
                "Reboot the node",
                "sudo reboot",
                "mostly needed",
                risk="admin",
                loses=_MACHINE,
            ),
            Row(
                "command",
                "Save the evidence",
                "sudo nvidia-bug-report.sh --safe-mode",
                "safe mode does not wait for the GPU",
                risk="admin",
            ),
        ),
    ),
    "nvlink_fault": Repair(
        "nvidia-smi nvlink -e counts no new errors under load",
        (
            Row(
                "command",
                "Look at the links' error counters",
                "nvidia-smi nvlink -e; nvidia-smi nvlink -s",
                "both ends of the link matter",
            ),
            Row(
                "hardware",
                "Reset all GPUs of the link together, or reboot",
                "sudo nvidia-smi --gpu-reset",
                "a single GPU of an NVLink domain cannot be reset alone",
                risk="admin",
                loses="all jobs on these GPUs",
            ),
        ),
    ),
    "device_state_bad": Repair(
        "a fresh process computes a matmul on this GPU",
        (
            Row(
                "env",
                "Go on with another GPU",
                "CUDA_VISIBLE_DEVICES=<another GPU>",
                "the fault stays with the device",
            ),
            Row(
                "command",
                "Reset it when nothing uses it",
                "sudo nvidia-smi --gpu-reset -i {gpu}",
                "clears the state",
                risk="admin",
                loses=_JOBS,
            ),
        ),
    ),
    "reset_blocked": Repair(
        "nvidia-smi --gpu-reset succeeds and a matmul passes",
        (
            Row(
                "in-process",
                "Close this cockpit: it holds the device too",
                "q",
                "an open NVML handle is a client",
                wants="holds_self",
            ),
            Row(
                "command",
                "Stop the daemons in their own way",
                "sudo systemctl stop nvidia-persistenced nvidia-dcgm",
                "they keep the device open: {holders}",
                risk="admin",
                loses="monitoring until they are started again",
            ),
            Row(
                "command",
                "Then reset",
                "sudo nvidia-smi -pm 0 -i {gpu} && sudo nvidia-smi --gpu-reset -i {gpu}",
                "persistence mode counts as a client",
                risk="admin",
                loses=_JOBS,
            ),
            Row(
                "command",
                "On a node without display",
                "sudo modprobe -r nvidia_drm nvidia_modeset",
                "the display modules hold it as well",
                risk="admin",
                loses="the console's graphics",
            ),
        ),
    ),
    "benign": Repair("nothing to verify", ()),
}
