"""The routes of the REST API, one file per noun. Each unpacks, calls one service and returns."""
