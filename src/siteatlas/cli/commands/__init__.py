"""The commands of `siteatlas`, one module per noun, imported on first use."""
