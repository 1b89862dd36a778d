"""The pages of the dashboard, one module per noun."""
