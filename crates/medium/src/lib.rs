//! Media: the bytes of their ISOs, the area that can be customized afterwards, readers of finished media, releases as artifacts
//! in a registry, and the sources from which payloads are read.

pub mod artifact;
pub mod customization;
pub mod iso;
pub mod opened;
pub mod output;
pub mod patches;
pub mod served;
pub mod sources;
