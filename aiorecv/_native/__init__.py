"""The C of aiorecv: receive calls and their structs. Nothing here calls Python."""
