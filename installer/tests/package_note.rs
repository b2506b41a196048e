//! The program says in a note of its ELF file what it is and of which version: `iso-builder build` takes no other one.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on, helpers included")]

#[test]
fn the_program_has_a_note_with_its_name_and_version() {
    let bytes = std::fs::read(env!("CARGO_BIN_EXE_installer")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let text = format!(r#"{{"type":"cargo","name":"installer","version":"{version}"}}"#);
    let mut note = 0xcafe_1a7e_u32.to_le_bytes().to_vec();
    note.extend(b"FDO\0");
    note.extend(text.as_bytes());
    assert!(bytes.windows(note.len()).any(|stretch| stretch == note));
}
