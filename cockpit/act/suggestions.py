"""What to write by hand, one entry a kind of change: shown beside the source and the editor."""

from __future__ import annotations

from typing import NamedTuple


class Suggestion(NamedTuple):
    """``lines`` may hold ``{{fact}}``."""

    title: str
    lines: tuple[str, ...]
    verify: str


SUGGESTIONS: dict[str, Suggestion] = {
    "autocast_bf16": Suggestion(
        "compute the forward pass in bf16",
        (
            "Put the forward pass and the loss, but not backward(), under autocast:",
            "",
            '    with torch.autocast("cuda", dtype=torch.bfloat16):',
            "        out = model(x)",
            "        loss = criterion(out, y)",
            "    loss.backward()",
            "",
            'Lightning: Trainer(precision="bf16-mixed").',
            "transformers: TrainingArguments(bf16=True).",
            "Results for NumPy need .float() first; BCELoss becomes BCEWithLogitsLoss.",
        ),
        "the peak of torch.cuda.max_memory_allocated() falls, the loss goes on falling",
    ),
    "dataloader": Suggestion(
        "load data in workers of their own",
        (
            "Give the DataLoader of the training loop:",
            "",
            "    num_workers={{workers}}, pin_memory=True, persistent_workers=True, "
            "prefetch_factor=4",
            "",
            "The data set must not touch CUDA in __getitem__; an IterableDataset has to share its",
            "stream out by torch.utils.data.get_worker_info(). Where processes are spawned, the",
            'script needs `if __name__ == "__main__":` around what it starts.',
        ),
        "the GPU's utilisation rises, the time of a step falls",
    ),
    "detach_loss": Suggestion(
        "keep numbers, not tensors with their graph",
        (
            "What outlives a step must not hold its graph:",
            "",
            "    losses.append(loss.item())",
            "    total += loss.detach()",
            "",
            "Look for tensors kept in lists, dicts, attributes and hooks.",
        ),
        "torch.cuda.memory_allocated() is the same after each step",
    ),
    "gradient_checkpointing": Suggestion(
        "recompute activations in the backward pass",
        (
            "Where the model is made (transformers):",
            "",
            "    model.gradient_checkpointing_enable()",
            "",
            "In a module of your own, in forward:",
            "",
            "    for layer in self.layers:",
            "        x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)",
            "",
            "With adapters (PEFT) also model.enable_input_require_grads().",
        ),
        "the peak of torch.cuda.max_memory_allocated() falls",
    ),
    "map_location": Suggestion(
        "load the checkpoint into host memory",
        (
            '    torch.load(path, map_location="cpu")',
            "",
            "Then copy it into the model (load_state_dict) or move it: .to(device).",
        ),
        "no rank holds memory on another rank's GPU; the load passes",
    ),
    "no_grad": Suggestion(
        "evaluate without a graph",
        (
            "    model.eval()",
            "    with torch.no_grad():",
            "        for x, y in loader:",
            "            ...",
        ),
        "torch.cuda.memory_allocated() does not rise during the evaluation",
    ),
    "set_device": Suggestion(
        "give each rank its own GPU",
        (
            "Before the first CUDA call of each rank:",
            "",
            '    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
            "",
            "torchrun sets LOCAL_RANK; with torch.multiprocessing.spawn use the rank it passes.",
        ),
        "each rank's pid is on its own GPU in `cockpit ps`",
    ),
    "sync_free": Suggestion(
        "wait for the GPU less often",
        (
            "Each .item(), .cpu() and print of a tensor waits for all queued work:",
            "",
            "    total += loss.detach()        # each step",
            "    if step % 100 == 0:",
            "        print(step, loss.item())",
            "    total = total.item()          # once, after the loop",
        ),
        "the time of a step falls; the GPU's utilisation rises",
    ),
    "to_device": Suggestion(
        "bring model and batch to the same device",
        (
            "Before the loop:             model = model.to(device)",
            "First thing in the loop:     x, y = x.to(device), y.to(device)",
            "A dict of tensors:           batch = {k: v.to(device) for k, v in batch.items()}",
            "",
            "Tensors made inside a module: device=x.device, or register_buffer.",
        ),
        "the step passes; the process holds memory on the GPU",
    ),
}
