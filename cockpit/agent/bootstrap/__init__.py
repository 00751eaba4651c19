"""The folder that ``cockpit run`` puts first on PYTHONPATH: sitecustomize, nothing else."""
