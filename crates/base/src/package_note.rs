//! The name and the version of a program as a note in its ELF file, so that `iso-builder` can identify it without running it;
//! `readelf --notes` shows it too.
//!
//! The form is that of the ELF package metadata of the UAPI group: a note of the owner `FDO` and the type `0xcafe1a7e` whose
//! content is JSON (<https://uapi-group.org/specifications/specs/package_metadata_for_executable_files/>).

/// Puts the note into a program of this name. The version is that of the crate.
#[macro_export]
macro_rules! package_note {
    ($name:literal) => {
        const _: () = {
            /// The JSON of the note, with the terminating zero that the specification asks for.
            const TEXT: &[u8] = concat!(
                r#"{"type":"cargo","name":""#,
                $name,
                r#"","version":""#,
                env!("CARGO_PKG_VERSION"),
                r#""}"#,
                "\0"
            )
            .as_bytes();

            /// The length of the text, padded to a multiple of four, as the content of a note is.
            const LENGTH: usize = TEXT.len().next_multiple_of(4);

            /// A note as it is in the file (ELF, gabi "Note Section").
            #[repr(C, align(4))]
            struct Note {
                owner_length: u32,
                length: u32,
                kind: u32,
                owner: [u8; 4],
                text: [u8; LENGTH],
            }

            const fn filled_up() -> [u8; LENGTH] {
                let mut text = [0; LENGTH];
                let mut at = 0;
                while at < TEXT.len() {
                    text[at] = TEXT[at];
                    at += 1;
                }
                text
            }

            #[used]
            #[expect(
                unsafe_code,
                reason = "only plain data goes to the section, in the form that the section is for"
            )]
            #[unsafe(link_section = ".note.package")]
            static NOTE: Note = Note {
                owner_length: 4,
                length: LENGTH as u32,
                kind: 0xcafe_1a7e,
                owner: *b"FDO\0",
                text: filled_up(),
            };
        };
    };
}
