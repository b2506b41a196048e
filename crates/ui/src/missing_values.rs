//! Requests for missing values, in the words of the screens.

/// The request for a missing value; `None` for a value that no screen asks for.
pub(crate) fn missing_value(path: &str) -> Option<&'static str> {
    Some(match path {
        "install.device" => "Choose the disk for the system.",
        "install.management_interface.interfaces" => "Mark a network card.",
        "install.management_interface.ip" => "Type the address of this node.",
        "install.management_interface.subnet_mask" => "Type the network mask, such as 255.255.255.0.",
        "install.management_interface.gateway" => "Type the address of the gateway.",
        "os.dns_nameservers" => "Type the address of a name server: a fixed address brings none.",
        "install.vip" => "Type the VIP: a free address in the nodes' network, at which the cluster answers.",
        "install.vip_hw_addr" => "Type the hardware address by which the DHCP server knows the VIP.",
        "token" => "Type the token of the cluster. For a new cluster, F6 makes one.",
        "server_url" => "Type the VIP of the cluster, or its name.",
        "os" => "Type a password or an SSH key: without one nobody can log in.",
        _ => return None,
    })
}
