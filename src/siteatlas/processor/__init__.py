"""One job from its claim to its final status. The only room that knows scanner and storage both."""
