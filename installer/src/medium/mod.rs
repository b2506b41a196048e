//! Where payloads come from: a directory (a mounted medium) or an HTTP server.
