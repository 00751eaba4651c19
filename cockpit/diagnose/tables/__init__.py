"""What is known, as data: causes, fixes, CUDA compatibility. No logic.

These tables may pass 400 lines: they are read by looking a row up, not from their first line on.
"""
