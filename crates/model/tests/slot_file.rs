//! The file by which a slot tells the boot loader about itself.

use model::boot::grub::slot_cfg;

#[test]
fn a_slot_names_its_release_and_its_arguments() {
    let mut release = testing::release::release();
    release.name = "Maker's".into();
    release.version = "1.2".into();
    release.kernel_arguments = vec!["quiet".into(), "a=1,2".into()];
    assert_eq!(slot_cfg(&release), "set slot_title='Maker'\\''s 1.2'\nset slot_words='quiet a=1,2'\n");
    release.kernel_arguments.clear();
    assert!(slot_cfg(&release).ends_with("set slot_words=''\n"));
}
