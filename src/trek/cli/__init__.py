"""The `trek` command: one file per noun, each imported only when its command runs."""
