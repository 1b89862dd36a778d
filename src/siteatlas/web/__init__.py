"""What browsers are served in addition to the API: currently the offline reference at `/docs`."""
