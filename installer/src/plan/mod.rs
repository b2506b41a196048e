//! From configuration, inventory and release manifest to a plan: a pure function.
