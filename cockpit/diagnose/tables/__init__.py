"""What is known, as data: causes, fixes, CUDA compatibility. No logic."""
