"""The routes of the API, one router per noun."""
