//! A medium: what its ISO has at every byte, what can be changed on it afterwards, reading it when it is finished, its form in a registry, and the sources that payloads are read from.

pub mod artifact;
pub mod customization;
pub mod iso;
pub mod opened;
pub mod output;
pub mod patches;
pub mod served;
pub mod sources;
