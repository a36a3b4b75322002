"""One third party per file, over public names. Nothing here is loaded unless somebody asks for it."""
