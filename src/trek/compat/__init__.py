"""Other projects' spellings over Trek's public names: change the import lines of a script, and it runs on Trek."""
