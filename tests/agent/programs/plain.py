"""A program that never imports torch: sleeps in a function whose name shows in its stack."""

import sys
import threading  # noqa: F401 - gives the main thread its name
import time

from cockpit.agent import attach

attach(directory=sys.argv[1])


def waits_here():
    while True:
        time.sleep(0.05)


waits_here()
