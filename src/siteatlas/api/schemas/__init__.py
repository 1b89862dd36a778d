"""The models of requests and responses, one module per noun, with limits and examples."""
