"""Writes a fuzz target's first inputs, a file each."""
import os


def write(folder, inputs):
    """inputs: {file name: bytes}."""
    os.makedirs(folder, exist_ok=True)
    for name, data in inputs.items():
        with open(os.path.join(folder, name), "wb") as out:
            out.write(data)
    print(f"{len(inputs)} inputs, {sum(map(len, inputs.values()))} bytes")
