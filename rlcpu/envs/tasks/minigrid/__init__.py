"""Three of MiniGrid's worlds, seen through a window of seven by seven cells."""
