"""One job from its claim to its final status. The only package with both scanner and storage."""
