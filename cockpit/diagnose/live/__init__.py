"""Pure: snapshots over time, and a few looks at stacks, to findings. Start with watch.py."""
