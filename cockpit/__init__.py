"""gpu-cockpit: see what the GPUs, the host and the training runs do, and act on it with proof.

Holds the version and nothing else, in Python 3.8 syntax: the agent's side of the package is
imported by the interpreters of users' runs.
"""

__version__ = "0.1.0"
