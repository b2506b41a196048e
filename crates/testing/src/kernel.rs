//! Kernel modules that do nothing, and the directory of a kernel's modules as depmod leaves it.

use std::fs;
use std::path::Path;

/// A module (64-bit ELF) whose section `.modinfo` says this.
pub fn module(info: &[(&str, &str)]) -> Vec<u8> {
    let records: String = info.iter().map(|(key, value)| format!("{key}={value}\0")).collect();
    let names = b"\0.modinfo\0.shstrtab\0";
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    for half in [1_u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    let (first, second) = (64, 64 + records.len());
    let table = (second + names.len()).next_multiple_of(8);
    for word in [0_u64, 0, table as u64] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 0, 0, 64, 3, 2] {
        file.extend(half.to_le_bytes());
    }
    file.extend(records.as_bytes());
    file.extend(names);
    file.resize(table, 0);
    for (name, kind, at, size) in
        [(0_u32, 0_u32, 0, 0), (1, 1, first, records.len()), (10, 3, second, names.len())]
    {
        file.extend(name.to_le_bytes());
        file.extend(kind.to_le_bytes());
        for word in [0, 0, at as u64, size as u64] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0; 8]);
        for word in [1_u64, 0] {
            file.extend(word.to_le_bytes());
        }
    }
    file
}

/// Fills `directory` with the modules of a small kernel: `ahci` built in, `bnx2x` (which wants firmware), `megaraid_sas` and `virtio_net`
/// as files, and one that is packed.
pub fn module_tree(directory: &Path) {
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let firmware = ["bnx2x/bnx2x-e2-7.13.15.0.fw", "bnx2x/bnx2x-e2-7.13.21.0.fw"];
    write("kernel/drivers/bnx2x.ko", &module(&firmware.map(|file| ("firmware", file))));
    write("kernel/drivers/megaraid_sas.ko", &module(&[("license", "GPL")]));
    write("kernel/virtio-net.ko", &module(&[("name", "virtio_net")]));
    write("kernel/packed.ko.xz", b"packed");
    write("modules.builtin", b"kernel/drivers/ata/ahci.ko\n");
    write("modules.builtin.modinfo", b"ahci.license=GPL\0ahci.alias=pci:v*d*sv*sd*bc01sc06i01*\0");
    let aliases = [
        "pci:v000014E4d0000168Esv*sd*bc*sc*i* bnx2x",
        "pci:v00001000d0000005Dsv*sd*bc*sc*i* megaraid_sas",
        "virtio:d00000001v* virtio_net",
        "usb:vABCD* packed",
    ];
    let text: String = aliases.iter().map(|alias| format!("alias {alias}\n")).collect();
    write("modules.alias", format!("# Aliases extracted from modules themselves.\n{text}").as_bytes());
}
