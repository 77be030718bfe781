"""What a server answers, as it comes from somebody who is not trusted: bounded, then checked."""
