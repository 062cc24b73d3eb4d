"""The server and its page: anticipation of uploaded videos and of streams, watched in a browser."""
