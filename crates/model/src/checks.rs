//! The names of the checks of a machine, which configurations may skip; the installer makes them.

/// Every check, in the order in which they are made and shown.
pub const NAMES: [&str; 23] = [
    "cpu",
    "memory",
    "kvm",
    "virtualisation",
    "firmware",
    "dmi-uuid",
    "disk-size",
    "disk-speed",
    "nic-link",
    "nic-speed",
    "clock",
    "dns",
    "ntp",
    "proxy",
    "address-conflict",
    "join-server",
    "join-authority",
    "join-token",
    "join-clock",
    "join-hostname",
    "join-witness",
    "join-vip",
    "join-version",
];
