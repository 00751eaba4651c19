"""Ways into a running process and out of it: launch, ptrace, remote_exec, stacks."""
