"""The face: the only package that imports textual. Draws snapshots, asks for actions."""
