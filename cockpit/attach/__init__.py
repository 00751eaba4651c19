"""Ways into a running process (a later issue): launch, ptrace, remote_exec, stacks."""
