use super::*;
use model::config::Profile;
use proptest::prelude::*;

const GUID: Uuid = uuid::uuid!("6d0e4a52-8c2c-4a4f-9d55-8e1f3c6b7a90");

fn request(disk: ByteSize, profile: Profile) -> LayoutRequest {
    LayoutRequest {
        disk,
        sector: SectorSize::B512,
        sizes: PartitionSizes::of(profile),
        persistent: None,
        data: true,
        spare: ByteSize::default(),
    }
}

#[test]
fn production_follows_the_architecture() {
    let layout = arrange(request(ByteSize::gib(500), Profile::Production), GUID).unwrap();
    let told: Vec<_> = layout.iter().map(|p| format!("{} {}", p.name.as_str(), p.size)).collect();
    assert_eq!(
        told,
        [
            "bios 1 MiB",
            "esp 1 GiB",
            "config 256 MiB",
            "root-a 6 GiB",
            "root-b 6 GiB",
            "recovery 6 GiB",
            "persistent 150 GiB",
            "data 330.7 GiB",
        ]
    );
    assert_eq!(layout[0].start, ALIGNMENT);
}

#[test]
fn a_trial_fits_a_disk_of_16_gib() {
    let layout = arrange(request(ByteSize::gib(16), Profile::Trial), GUID).unwrap();
    assert_eq!(layout[6].size, ByteSize::gib(6));
    assert_eq!(layout.len(), 8);
}

#[test]
fn a_witness_has_no_data_and_all_the_rest_for_what_lasts() {
    let request = LayoutRequest { data: false, ..request(ByteSize::gib(180), Profile::Production) };
    let layout = arrange(request, GUID).unwrap();
    assert_eq!(layout.len(), 7);
    assert!(layout[6].size > ByteSize::gib(160));
}

#[test]
fn bounds_are_told_with_both_numbers() {
    let small = arrange(request(ByteSize::gib(249), Profile::Production), GUID).unwrap_err();
    assert_eq!(small, LayoutError::Disk { needed: ByteSize::gib(250), found: ByteSize::gib(249) });
    let with = |size| {
        let request = request(ByteSize::gib(250), Profile::Production);
        arrange(LayoutRequest { persistent: Some(size), ..request }, GUID)
    };
    assert!(matches!(with(ByteSize::gib(149)), Err(LayoutError::PersistentTooSmall { .. })));
    assert!(matches!(with(ByteSize::gib(200)), Err(LayoutError::PersistentTooLarge { .. })));
    assert_eq!(with(ByteSize::gib(160)).unwrap()[6].size, ByteSize::gib(160));
}

#[test]
fn what_is_spared_at_the_end_gives_way_to_the_least_sizes() {
    let spare = ByteSize::mib(100);
    let free = |gib: u64| {
        let request = LayoutRequest { spare, ..request(ByteSize::gib(gib), Profile::Trial) };
        end(request.disk, request.sector) - arrange(request, GUID).unwrap()[7].end()
    };
    assert_eq!(free(16), spare);
    assert_eq!(free(10), ByteSize::mib(61));
}

fn stays(start: ByteSize, size: ByteSize) -> KeptPlace {
    KeptPlace { uuid: GUID, start, size }
}

#[test]
fn what_is_kept_has_to_leave_room_for_the_system_and_for_the_table() {
    let request = request(ByteSize::gib(500), Profile::Production);
    let needed = ByteSize::mib(1 + 1 + 1024 + 256 + 3 * 6144) + ByteSize::gib(150);
    let before = |start| arrange_before(request, stays(start, ByteSize::gib(300)), GUID);
    let layout = before(needed).unwrap();
    assert_eq!((layout[6].size, layout[6].end()), (ByteSize::gib(150), needed));
    let found = needed - ByteSize::bytes(512);
    assert_eq!(before(found).unwrap_err(), LayoutError::NoRoomBefore { needed, found });
    let reaching = |end: ByteSize| arrange_before(request, stays(needed, end - needed), GUID);
    let most = ByteSize::gib(500) - ByteSize::bytes((16 << 10) + 512);
    assert!(reaching(most).is_ok());
    let found = most + ByteSize::bytes(512);
    assert_eq!(reaching(found).unwrap_err(), LayoutError::NoRoomForTable { found, most });
}

proptest! {
    #[test]
    fn what_is_kept_stays_and_the_others_fit_before_it(
        disk in (10_u64 << 30)..(20 << 40),
        start in (1_u64 << 30)..(1 << 40),
        size in 1_u64..(10 << 40),
        four_k: bool,
        persistent in proptest::option::of(1_u64..(1 << 40)),
    ) {
        let sector = if four_k { SectorSize::B4096 } else { SectorSize::B512 };
        let whole = |bytes: u64| ByteSize::bytes(bytes.next_multiple_of(sector.bytes()));
        let request = LayoutRequest {
            disk: whole(disk),
            sector,
            sizes: PartitionSizes::of(Profile::Trial),
            persistent: persistent.map(ByteSize::bytes),
            data: true,
            spare: ByteSize::default(),
        };
        let kept = stays(whole(start), whole(size));
        let Ok(layout) = arrange_before(request, kept, GUID) else { return Ok(()) };
        let (data, system) = layout.split_last().unwrap();
        prop_assert_eq!(stays(data.start, data.size), kept);
        prop_assert_eq!((data.number, data.name, data.uuid), (8, PartitionName::Data, GUID));
        prop_assert!(data.end().get() + TABLE_BYTES + sector.bytes() <= request.disk.get());
        let mut end = ALIGNMENT;
        for partition in system {
            prop_assert_eq!(partition.start, end);
            prop_assert!(partition.size.get().is_multiple_of(ALIGNMENT.get()) && partition.size >= ALIGNMENT);
            end = partition.end();
        }
        prop_assert!(end <= kept.start);
        prop_assert!(persistent.is_some() || kept.start.saturating_sub(end) < ALIGNMENT);
    }

    #[test]
    fn a_data_disk_is_all_data_between_the_two_tables(
        disk in (1_u64 << 30)..(20 << 40),
        four_k: bool,
    ) {
        let sector = if four_k { SectorSize::B4096 } else { SectorSize::B512 };
        let disk = ByteSize::bytes(disk / sector.bytes() * sector.bytes());
        let layout = arrange_data(disk, sector, PartitionSizes::of(Profile::Trial), GUID).unwrap();
        prop_assert_eq!(layout.len(), 1);
        prop_assert_eq!((layout[0].start, layout[0].name), (ALIGNMENT, PartitionName::Data));
        prop_assert!(layout[0].size.get().is_multiple_of(ALIGNMENT.get()));
        let after = disk.get() - layout[0].end().get();
        let table = TABLE_BYTES + sector.bytes();
        prop_assert!((table..ALIGNMENT.get() + table).contains(&after), "{}", after);
    }

    #[test]
    fn partitions_are_aligned_contiguous_and_leave_room_for_the_table(
        disk in (9_u64 << 30)..(20 << 40),
        four_k: bool,
        production: bool,
        data: bool,
        persistent in proptest::option::of(1_u64..(8 << 40)),
        spare in 0_u64..512,
    ) {
        let sector = if four_k { SectorSize::B4096 } else { SectorSize::B512 };
        let spare = ByteSize::mib(spare);
        let profile = if production { Profile::Production } else { Profile::Trial };
        let disk = ByteSize::bytes(disk / sector.bytes() * sector.bytes());
        let sizes = PartitionSizes::of(profile);
        let persistent = persistent.map(ByteSize::bytes);
        let request = LayoutRequest { disk, sector, sizes, persistent, data, spare };
        let Ok(layout) = arrange(request, GUID) else { return Ok(()) };
        let mut end = ALIGNMENT;
        for (index, partition) in layout.iter().enumerate() {
            prop_assert_eq!(partition.number as usize, index + 1);
            prop_assert_eq!(partition.start, end);
            prop_assert!(partition.start.get().is_multiple_of(ALIGNMENT.get()));
            prop_assert!(partition.size.get().is_multiple_of(ALIGNMENT.get()));
            prop_assert!(partition.size >= ALIGNMENT);
            end = partition.end();
        }
        prop_assert!(end.get() + TABLE_BYTES + sector.bytes() <= disk.get());
        let size = |name| layout.iter().find(|p| p.name == name).map(|p| p.size);
        prop_assert!(size(PartitionName::Persistent) >= Some(sizes.persistent_minimum));
        prop_assert_eq!(size(PartitionName::Data).is_some(), data);
        prop_assert!(!data || size(PartitionName::Data) >= Some(sizes.data_minimum));
        // No less stays free than is wanted, unless a partition has its least size or that of the configuration.
        let free = super::end(disk, sector) - end;
        let at_least = match data {
            true => size(PartitionName::Data) == Some(sizes.data_minimum),
            false => persistent.is_some() || size(PartitionName::Persistent) == Some(sizes.persistent_minimum),
        };
        prop_assert!(free >= spare || at_least, "{} of {}", free, spare);
        prop_assert!(free <= spare || (persistent.is_some() && !data), "{} of {}", free, spare);
    }
}
