"""The shapes of requests and answers, one noun a file, with bounds and examples."""
