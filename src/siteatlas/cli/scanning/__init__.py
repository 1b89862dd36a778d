"""The one-shot scan client behind `siteatlas scan`: targets, formats, live view."""
