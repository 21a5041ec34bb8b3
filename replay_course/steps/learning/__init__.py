"""From learning once from each transition to Ape-X in a single loop: small complete agents."""
