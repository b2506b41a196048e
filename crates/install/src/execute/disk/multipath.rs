//! Partitions of a multipath disk. They are devices of the device mapper, which kpartx makes from the table; the kernel itself
//! shows none.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::plan::{Partition, PartitionName, Target};
use base::command::{Invocation, Runner};
use base::failure::{Class, Classify};

/// udev has to see each device before the next.
const KPARTX_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether the disk is a multipath map: its node is a name of the device mapper.
pub(crate) fn is_map(disk: &Target) -> bool {
    disk.path.starts_with("/dev/mapper")
}

/// Makes the devices of the current table, removes those of an older one, and returns the nodes.
pub(crate) fn partition_nodes(
    runner: &dyn Runner,
    disk: &Target,
    partitions: &[Partition],
) -> Result<BTreeMap<PartitionName, PathBuf>> {
    let path = disk.path.display();
    // Update, wait for udev, and use the names of Debian's udev rules.
    let make =
        Invocation::new("kpartx").args(["-u", "-s", "-p", "-part"]).arg(&disk.path).limit(KPARTX_TIMEOUT);
    runner.run(&make).class(Class::DiskIo, || format!("making the partition devices of {path}"))?;
    let node = |partition: &Partition| (partition.name, format!("{path}-part{}", partition.number).into());
    Ok(partitions.iter().map(node).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{GUID, disk, release, trial};
    use base::failure::{class_of, render};
    use base::size::ByteSize;
    use machine::inventory::Inventory;
    use std::path::Path;
    use testing::runner::ScriptedRunner;

    #[test]
    fn the_partitions_of_several_paths_are_made_known_and_named_by_number() {
        let mut disk = disk("dm-0", ByteSize::gib(16));
        disk.path = "/dev/mapper/mpatha".into();
        let inventory = Inventory { disks: vec![disk], ..Inventory::default() };
        let plan = crate::plan::plan(&trial(), &inventory, &release().into(), GUID).unwrap();
        assert!(is_map(&plan.disk));
        let runner = ScriptedRunner::silent();
        let nodes = partition_nodes(&runner, &plan.disk, &plan.partitions).unwrap();
        assert_eq!(nodes[&PartitionName::Data], Path::new("/dev/mapper/mpatha-part8"));
        assert_eq!(nodes.len(), plan.partitions.len());
        assert_eq!(runner.commands(), ["kpartx -u -s -p -part /dev/mapper/mpatha"]);
        let error =
            partition_nodes(&ScriptedRunner::failing("mkfs.ext4 ended with exit status: 1"), &plan.disk, &[])
                .unwrap_err();
        assert_eq!(class_of(&error), Class::DiskIo);
        assert!(render(&error).contains("making the partition devices of /dev/mapper/mpatha"), "{error:#}");
    }
}
