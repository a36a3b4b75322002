"""One third party per file, over public names. Nothing here is loaded unless it is used."""
