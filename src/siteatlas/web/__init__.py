"""What browsers are served beside the API: for now the offline reference at `/docs`."""
