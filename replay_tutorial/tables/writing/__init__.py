"""Writers: which steps an item names, and when they are sent."""
