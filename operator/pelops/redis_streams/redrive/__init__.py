"""What a StreamRedrive does to a group's dead letters, and what became of them."""
