"""What the machine offers to every room: files, disk, the home folder, the clock, signals of leaving."""
