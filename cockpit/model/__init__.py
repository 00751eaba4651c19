"""What is true: frozen structs with units in their names. No I/O, no imports of other rooms.

The structs are the model, the wire and the JSON output at once. ``None`` means "not known", never
zero; ``gaps`` says why.
"""
