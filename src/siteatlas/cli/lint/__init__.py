"""`siteatlas lint`: what it reads, which findings count, and how they are written."""
