//! QEMU's arguments for the parts of a machine.

use std::path::Path;

use super::{Attachment, Network, Nic};
use crate::disk::Disk;
use crate::segment::Segment;

/// What a disk of several paths says of itself on each of them.
const PATHS: &str = "serial=nqrust-paths,wwn=0x5000c5006e717273";
/// Its WWID as documents name it.
pub const PATHS_WWN: &str = "5000c5006e717273";

/// The arguments of QMP's `blockdev-add` and `device_add` by which the raw image `disk` gets a further path, on the controller that it had
/// one on as the disk `index`.
pub(super) fn further_path(disk: &Disk, index: usize) -> [serde_json::Value; 2] {
    let name = format!("further{index}");
    let file = serde_json::json!({ "driver": "file", "filename": disk.path, "locking": "off" });
    let mut device = serde_json::json!({
        "driver": "scsi-hd", "id": format!("further-path{index}"), "drive": name, "bus": format!("scsi{index}.0"),
        // The firmware looks only at disks that have a place in the order.
        "share-rw": true, "bootindex": index + 1,
    });
    for (key, value) in PATHS.split(',').filter_map(|option| option.split_once('=')) {
        // A world wide name is a number.
        let number = value.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        device[key] = number.map_or_else(|| value.into(), Into::into);
    }
    [serde_json::json!({ "driver": "raw", "node-name": name, "file": file }), device]
}

pub(super) fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// A path as the value of one of QEMU's comma-separated options.
pub(super) fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// `ide` says whether the board has a controller for SATA of its own, as that of x86 does.
pub(super) fn disk_arguments(index: usize, attachment: Attachment, disk: &Disk, ide: bool) -> Vec<String> {
    let (format, path) = (disk.format.name(), escaped(&disk.path));
    let id = format!("disk{index}");
    // Test results do not have to survive a crash of the host, so flushes need not reach its disk.
    let common = match &disk.log {
        None => format!(
            "if=none,id={id},format={format},file={path},cache=unsafe,discard=unmap,detect-zeroes=unmap"
        ),
        // Omitted flushes would be missing in the log.
        Some(log) => format!(
            "if=none,id={id},driver=blklogwrites,file.driver={format},file.file.driver=file,\
             file.file.filename={path},log.driver=file,log.filename={},cache=writeback",
            escaped(log)
        ),
    };
    let order = index + 1;
    let mut arguments = Vec::new();
    let controller = match attachment {
        Attachment::Controller(model) => Some(model),
        Attachment::Scsi | Attachment::ScsiPath => Some("virtio-scsi-pci"),
        Attachment::CdRom if !ide => Some("virtio-scsi-pci"),
        _ => None,
    };
    if let Some(model) = controller {
        arguments.extend(words(&format!("-device {model},id=scsi{index}")));
    }
    if attachment == Attachment::Namespace(1) {
        arguments.extend(words("-device nvme,id=nvme,serial=nqrust-namespaces"));
    }
    let serial = format!("serial=nqrust-{index}");
    let (drive, device) = match attachment {
        Attachment::CdRom => {
            let drive = if ide {
                format!("ide-cd,drive={id},bus=ide.{index}")
            } else {
                format!("scsi-cd,drive={id},bus=scsi{index}.0")
            };
            (format!("{common},media=cdrom,readonly=on"), format!("{drive},bootindex={order}"))
        }
        Attachment::Usb => (
            common,
            format!("usb-storage,bus=usb.0,drive={id},removable=on,bootindex={order},serial=stick{index}"),
        ),
        Attachment::UsbDisk => {
            (common, format!("usb-storage,bus=usb.0,drive={id},bootindex={order},{serial}"))
        }
        Attachment::Namespace(number) => {
            (common, format!("nvme-ns,bus=nvme,drive={id},nsid={number},bootindex={order}"))
        }
        Attachment::Virtio => (common, format!("virtio-blk-pci,drive={id},bootindex={order},{serial}")),
        Attachment::Sata => (common, format!("ide-hd,drive={id},bus=ide.{index},bootindex={order},{serial}")),
        Attachment::Scsi => {
            (common, format!("scsi-hd,drive={id},bus=scsi{index}.0,bootindex={order},{serial}"))
        }
        // Without a name, which is also its SAS address, Linux finds no disk behind mptsas1068.
        Attachment::Controller(_) => {
            let wwn = format!("wwn=0x5000c500000000{order:02x}");
            (common, format!("scsi-hd,drive={id},bus=scsi{index}.0,bootindex={order},{serial},{wwn}"))
        }
        // QEMU opens the file once for each path.
        Attachment::ScsiPath => (
            format!("{common},file.locking=off"),
            format!(
                "scsi-hd,id=path{index},drive={id},bus=scsi{index}.0,bootindex={order},share-rw=on,{PATHS}"
            ),
        ),
        Attachment::Nvme(sector) => {
            let blocks = format!("logical_block_size={sector},physical_block_size={sector}");
            (common, format!("nvme,drive={id},bootindex={order},{serial},{blocks}"))
        }
    };
    arguments.extend(["-drive".into(), drive, "-device".into(), device]);
    arguments
}

/// `model` is that of the card, one of QEMU's.
pub(super) fn nic_arguments(index: usize, nic: &Nic, model: &str) -> Vec<String> {
    let mut order = "";
    let network = match &nic.network {
        Network::User { restricted, ssh_to, boot } => {
            let restrict = if *restricted { "on" } else { "off" };
            let file = boot.as_ref().map(|url| format!(",bootfile={url}")).unwrap_or_default();
            if boot.is_some() {
                order = ",bootindex=0";
            }
            format!("user,id=net{index},restrict={restrict},hostfwd=tcp:127.0.0.1:0-{ssh_to}:22{file}")
        }
        Network::Storage { boot } => {
            let file = boot.as_ref().map(|url| format!(",bootfile={url}")).unwrap_or_default();
            if boot.is_some() {
                order = ",bootindex=0";
            }
            format!("user,id=net{index},net=10.0.4.0/24{file}")
        }
        Network::Wire { end, wire } => {
            format!("socket,id=net{index},udp=127.0.0.1:{wire},localaddr=127.0.0.1:{end}")
        }
        Network::Segment => {
            order = ",bootindex=0";
            format!("tap,id=net{index},ifname={},script=no,downscript=no", Segment::TAP)
        }
    };
    vec![
        "-netdev".into(),
        network,
        "-device".into(),
        format!("{model},id=nic{index},netdev=net{index},mac={}{order}", nic.mac),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_a_path_do_not_become_options() {
        assert_eq!(escaped(Path::new("/a,b/c")), "/a,,b/c");
    }
}
