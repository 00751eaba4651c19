"""Runs inside the user's training process (a later issue). Imports nothing of ours; Python 3.8."""
