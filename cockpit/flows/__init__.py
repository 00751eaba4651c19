"""Guided troubleshooting as data and a pure state machine (a later issue)."""
