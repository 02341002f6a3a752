"""What each kind of store needs for an atomic create."""
