//! Media: the bytes of their ISOs, the area that can be customized afterwards, readers of finished media, releases as artifacts
//! in a registry, and the sources from which payloads are read.

pub mod artifact;
pub mod build_output;
pub mod by_architecture;
pub mod customization;
pub mod http;
pub mod iso;
pub mod network_boot;
pub mod patches;
pub mod payload_sources;
pub mod reader;
pub mod signatures;
