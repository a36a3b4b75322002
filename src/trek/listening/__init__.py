"""How Trek's HTTP servers listen: sockets, connections that are watched, bodies with limits. Knows no route."""
