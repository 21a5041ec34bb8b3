"""Data structures that the processes of one machine share: replay buffers, a mailbox and a limiter."""
