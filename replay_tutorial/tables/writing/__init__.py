"""Writers, which append steps, create items that reference them, and send both to the server."""
