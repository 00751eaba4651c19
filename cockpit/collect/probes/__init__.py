"""Programs that run in a job's interpreter, read as text and never imported by us.

Python 3.8 syntax, standard library only. Each line that they write is the marker and one JSON
object, flushed at once: what was known before a hang is not lost.
"""
