"""Where Tables come from: memory, files, folders, named data sets, functions and streams."""
