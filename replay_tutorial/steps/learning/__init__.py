"""From learning of each transition once to Ape-X in one loop: small whole agents, each one file."""
