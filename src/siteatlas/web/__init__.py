"""What browsers are served in addition to the API: the dashboard, and the offline reference."""
