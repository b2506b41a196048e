//! Certificates that servers show.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../crates/cluster/src/join_query/certificate.rs"]
mod certificate;

fuzz_target!(|bytes: &[u8]| {
    let _ = certificate::is_self_issued(bytes);
    let _ = certificate::key_digest(bytes);
});
