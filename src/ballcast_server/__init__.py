"""The server: many streams, uploaded videos and event feeds, and the web page that shows them. Extra `server`."""
