//! What runs on an installed node: applying the node document, mounting at boot, status.
